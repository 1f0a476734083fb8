"""A consumer group: its topics, lanes, batches, retries and order.

Thread: none (pure values).

Owns the keys and words of the consumer-group file, and the keys beyond it. The defaults are those of a `multilane.yaml`
(decision 013); files of the Go library have their own (`scaler_defaults`). Times are seconds, sizes bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from multilane.config.app.cluster import (
    FETCH_DOC,
    GROUP_PROTOCOL_DOC,
    HEARTBEAT_DOC,
    MEGABYTE,
    PROPERTIES_DOC,
    REBALANCE_DOC,
    SESSION_DOC,
    FetchBytes,
    GroupProtocol,
    Sharing,
)  # fmt: skip
from multilane.config.app.files.tree import Scalar
from multilane.config.app.kafka_names import Properties
from multilane.config.app.kinds import (
    Flag,
    LaneClasses,
    Seconds,
    SecondsOrZero,
    StartOffset,
    Text,
    TopicName,
    choice,
    decimal,
    size,
    whole,
)  # fmt: skip
from multilane.config.app.late_start import LateStart
from multilane.config.app.shape import ENTRY_NAME, Frozen, setting

WAITING_PER_LANE = 75
RetryOrder = Annotated[Literal["none", "key"], choice("none", "key")]
RETRY_ORDER_DOC = "key: later records of a failed key follow it into the retry topic, which keeps their order."
OnFailure = Annotated[Literal["retry", "drop"], choice("retry", "drop")]


class RetryBackoff(Frozen):
    """How long a failed record waits before it is retried; other keys do not wait."""

    kind: Annotated[Literal["fixed", "exponential"], choice("fixed", "exponential")] = setting(
        "Whether the delay grows with each attempt.", "fixed"
    )
    delay: SecondsOrZero = setting("The delay, or the first one if it grows.", 1.0)
    maximum: Seconds = setting("The longest delay.", 60.0)
    multiplier: Annotated[float, decimal(1.0, 100.0)] = setting("The factor by which the delay grows.", 2.0)
    jitter: Annotated[float, decimal(0.0, 1.0, share=True)] = setting(
        "The random share of a delay, which spreads the retries of simultaneous failures.", 0.0
    )


def default_backoff() -> RetryBackoff:
    """1, 2, 4 ... 60 seconds with 20% jitter, so that a short outage does not exhaust all attempts."""
    return RetryBackoff(kind="exponential", jitter=0.2)


BreakerAction = Annotated[Literal["pause", "stop", "off"], choice("pause", "stop", "off")]
BREAKER_DOC = "pause: wait until a record succeeds again; stop: end the app; off: keep going."


class ErrorBreaker(Frozen):
    """What the consumer does when most calls fail, instead of filling the error topic."""

    action: BreakerAction = setting(BREAKER_DOC, "pause")
    share: Annotated[float, decimal(0.0001, 1.0, share=True)] = setting(
        "The breaker trips when the share of failures exceeds this: 0.5 or 50%.", 0.5
    )
    window: Seconds = setting(
        "The time window in which failures are counted; with pause, longer while nothing succeeds.", 60.0
    )
    minimum: Annotated[int, whole(1)] = setting(
        "pause: the minimum number of similar failures; stop: the minimum number of records in a window.",
        derived=lambda known: 5 if known.get("action") == "pause" else 100,
        derived_doc="5 with pause, 100 with stop",
    )


class DetachAfter(Frozen):
    """How far a trigger may fall behind the others before it reads on its own."""

    records: Annotated[int, whole(1, 100_000_000)] = setting("Records of one partition that wait for it.", 20_000)
    time: Seconds = setting("How long it may not keep up with a partition.", 10.0)
    bytes: Annotated[int, size(1)] = setting("Bytes of one partition that wait for it.", 16 * MEGABYTE)


class ResultsConfig(Frozen):
    """Where what a listener returns is published."""

    topic: TopicName = setting("The topic for results, on the consumer's cluster.")


class ConsumerGroupConfig(Frozen):
    """`topic` is the key `name`; `name` is the name of the entry."""

    spellings: ClassVar = {"group.protocol": "group_protocol"}

    name: str = setting("The name of the consumer.", key=ENTRY_NAME)
    group_id: Text = setting("The consumer group.")
    topic: TopicName = setting("The topic.", key="name")
    cluster: Text = setting("The name of the cluster.")
    retry: TopicName | None = setting("The retry topic; read by the same group.", None)
    error: TopicName | None = setting("The error topic.", None)
    results: ResultsConfig | None = setting(
        "Where what the listener returns is published, before its record is settled.", None
    )
    retry_count: Annotated[int, whole(0, 1_000_000)] = setting(
        "How often a failed record is retried from the retry topic; 0 with a retry topic means 1.",
        derived=lambda known: 1 if known.get("retry") else 0,
        derived_doc="1 with a retry topic, else 0",
    )
    lanes: Annotated[int, whole(0, 100_000)] = setting(
        "Lanes per Kafka partition; 0 handles one record at a time.", 0, key="virtualPartitionCount"
    )
    batch_size: Annotated[int, whole(0, 1_000_000)] = setting("Records per batch; 0 and 1 mean single records.", 0)
    waiting_per_lane: Annotated[int, whole(1, 100_000_000)] = setting(
        "Records that may wait per lane before the partition is paused.",
        key="virtualPartitionChanCount",
        derived=lambda known: WAITING_PER_LANE * max(1, known.get("batch_size", 0)),
        derived_doc="75, and 75 times batchSize with batches",
    )
    unique: Flag = setting("Handle only the newest record of each key in a batch.", False, key="uniqueListener")
    batch_latency: Seconds = setting("How long a batch may wait to fill.", 3.0, key="consumeBatchListenerLatency")
    max_processing_time: Seconds = setting("How long a record or a batch may take before it fails.", 30.0)
    fetch_max_bytes: FetchBytes = setting(FETCH_DOC, MEGABYTE)
    error_consumer_disabled: Flag = setting(
        "Whether the cluster's error consumer skips this group's error topic.", False,
        key="disableErrorConsumer",
    )  # fmt: skip
    offset_initial: StartOffset = setting("Where a group without committed offsets starts: newest or oldest.", "newest")
    session_timeout: Seconds = setting(SESSION_DOC, 10.0)
    rebalance_timeout: Seconds = setting(REBALANCE_DOC, 60.0)
    heartbeat_interval: Seconds = setting(HEARTBEAT_DOC, 3.0)
    tracer: Text | None = setting(
        "The name of this consumer's spans.", derived=lambda known: known.get("group_id"), derived_doc="groupId"
    )
    group_protocol: GroupProtocol = setting(GROUP_PROTOCOL_DOC, None)
    retry_backoff: RetryBackoff | None = setting(
        "How long a failed record waits before its next attempt.",
        derived=lambda _: default_backoff(),
        derived_doc="exponential from 1s to 1m, jitter 20%",
    )
    on_failure: OnFailure = setting(
        "What happens to a failed record without an error topic or last step: retry retries it in place until it "
        "succeeds, drop logs it and commits past it.",
        "retry",
    )
    order_by: Annotated[Literal["key", "partition", "none"], choice("key", "partition", "none")] = setting(
        "Which records are handled in order: those of a key, those of a partition, or none.", "key"
    )
    lane_hash: Annotated[Literal["key", "murmur2", "bytesum"], choice("key", "murmur2", "bytesum")] = setting(
        "key: a free lane takes any ready key; murmur2 and bytesum bind a key to one lane.", "key"
    )
    max_in_flight_bytes: Annotated[int, size(1)] | None = setting("The most bytes of records in flight at once.", None)
    error_breaker: ErrorBreaker | None = setting(
        "The action when most calls fail.", derived=lambda _: ErrorBreaker(), derived_doc="action: pause"
    )
    error_stack: Flag = setting("Whether copies in retry and error topics include the error's stack trace.", True)
    ack: Annotated[Literal["auto", "manual"], choice("auto", "manual")] = setting(
        "manual: the handler acknowledges a record to settle it; returning is not enough.", "auto"
    )
    retry_order: RetryOrder = setting(
        RETRY_ORDER_DOC,
        derived=lambda known: "none" if known.get("order_by") == "none" or known.get("ack") == "manual" else "key",
        derived_doc="key; none with orderBy: none or ack: manual",
    )
    lane_classes: LaneClasses = setting(
        "Dedicated lanes for classes of records, which the app's routing function names.", derived=lambda _: {}
    )
    commit_interval: Seconds = setting("How often offsets are committed.", 1.0)
    audit: Text | None = setting(
        "The directory, or its address, of the audit records, which `multilane audit` reads.", None
    )
    crash_limit: Annotated[int, whole(0, 1_000)] = setting(
        "A record in flight at this many crashes of its process, once alone, goes to the error topic; 0: never.",
        3,
    )
    sharing: Sharing | None = setting(
        "Whether consumers of one group share a group member, so that each gets every record: same-topic shares one "
        "member per topic, cross-topic one for all topics; off: they divide the partitions.",
        None,
    )
    detach_after: DetachAfter = setting(
        "When a consumer that shares reads on its own, so that it does not hold up the others.",
        derived=lambda _: DetachAfter(),
    )
    shadow_group: Text | None = setting(
        "A group of its own in which the position of a consumer that shares is committed too, for tools that show lag.",
        None,
    )
    begin: LateStart | None = setting(
        "Where a consumer begins that joins others that share already: earliest, latest or a time; without it, at the "
        "group's position.",
        None,
        key="from",
    )
    absent_after: Seconds = setting(
        "How long commits wait for a consumer that shared and does not run any more.", 600.0
    )
    processes: Annotated[int, whole(0, 1_024)] = setting("Worker processes for CPU-bound handlers.", 0)
    properties: Properties = setting(PROPERTIES_DOC, derived=lambda _: {})

    @model_validator(mode="before")
    @classmethod
    def _ignore_zero_retries(cls, values: Any) -> Any:
        """retryCount 0 means the default: 1 with a retry topic, because a retry topic never read is an error topic."""
        count = values.get("retry_count") if isinstance(values, dict) else None
        text = count.text.strip() if isinstance(count, Scalar) else count
        return {n: v for n, v in values.items() if n != "retry_count"} if text in (0, "0") else values
