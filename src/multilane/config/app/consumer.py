"""A consumer group: its topics, lanes, listener, retry and everything about order.

Thread: none (pure values).

The keys and words of the consumer-group file, and the keys that go beyond it. The defaults are those of a
`multilane.yaml` (decision 013); files of the Go library have their own (`scaler_defaults`). Times are seconds, sizes
bytes.
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
)  # fmt: skip
from multilane.config.app.files.tree import Scalar
from multilane.config.app.kafka_names import Properties
from multilane.config.app.kinds import (
    Flag,
    LaneClasses,
    Offsets,
    Seconds,
    SecondsOrZero,
    Text,
    Topic,
    choice,
    decimal,
    size,
    whole,
)  # fmt: skip
from multilane.config.app.shape import ENTRY_NAME, Frozen, setting

WAITING_PER_LANE = 75
RetryOrder = Annotated[Literal["none", "key"], choice("none", "key")]
RETRY_ORDER_DOC = "key: later records of a failed key follow it into the retry topic, so that order survives."
OnFailure = Annotated[Literal["retry", "drop"], choice("retry", "drop")]


class RetryBackoff(Frozen):
    """How long a failed record waits before it is tried again; other keys do not wait with it."""

    kind: Annotated[Literal["fixed", "exponential"], choice("fixed", "exponential")] = setting(
        "Whether the wait grows with each attempt.", "fixed"
    )
    delay: SecondsOrZero = setting("The wait, or the first of them.", 1.0)
    maximum: Seconds = setting("What the wait grows to at most.", 60.0)
    multiplier: Annotated[float, decimal(1.0, 100.0)] = setting("By how much the wait grows each time.", 2.0)
    jitter: Annotated[float, decimal(0.0, 1.0, share=True)] = setting(
        "The share of a wait that is left to chance, so that failures do not come back together.", 0.0
    )


def default_backoff() -> RetryBackoff:
    """A short outage must not use up all attempts: 1, 2, 4 ... 60 seconds, spread by a fifth."""
    return RetryBackoff(kind="exponential", jitter=0.2)


BreakerAction = Annotated[Literal["pause", "stop", "off"], choice("pause", "stop", "off")]
BREAKER_DOC = "pause: wait until a record succeeds again; stop: end the app; off: keep going."


class ErrorBreaker(Frozen):
    """What the consumer does when most calls fail, instead of filling the error topic."""

    action: BreakerAction = setting(BREAKER_DOC, "pause")
    share: Annotated[float, decimal(0.0001, 1.0, share=True)] = setting(
        "It trips when the share of failures exceeds this: 0.5 or 50%.", 0.5
    )
    window: Seconds = setting(
        "The time over which failures are counted; with pause, longer while nothing succeeds.", 60.0
    )
    minimum: Annotated[int, whole(1)] = setting(
        "pause: how many failures alike it takes; stop: how many records a window needs to be judged.",
        derived=lambda known: 5 if known.get("action") == "pause" else 100,
        derived_doc="5 with pause, 100 with stop",
    )


class ConsumerGroupConfig(Frozen):
    """`topic` is the key `name`; `name` is what the entry is called."""

    spellings: ClassVar = {"group.protocol": "group_protocol"}

    name: str = setting("The name of the consumer.", key=ENTRY_NAME)
    group_id: Text = setting("The consumer group.")
    topic: Topic = setting("The topic.", key="name")
    cluster: Text = setting("The cluster, by its name.")
    retry: Topic | None = setting("The retry topic; read by the same group.", None)
    error: Topic | None = setting("The error topic.", None)
    retry_count: Annotated[int, whole(0, 1_000_000)] = setting(
        "How often a failed record is tried again from the retry topic; 0 with a retry topic means 1.",
        derived=lambda known: 1 if known.get("retry") else 0,
        derived_doc="1 with a retry topic, else 0",
    )
    lanes: Annotated[int, whole(0, 100_000)] = setting(
        "Lanes per Kafka partition; 0 is one record after the other.", 0, key="virtualPartitionCount"
    )
    batch_size: Annotated[int, whole(0, 1_000_000)] = setting("Records in a batch; 0 and 1 are single records.", 0)
    waiting_per_lane: Annotated[int, whole(1, 100_000_000)] = setting(
        "Records that may wait per lane; then the partition pauses.",
        key="virtualPartitionChanCount",
        derived=lambda known: WAITING_PER_LANE * max(1, known.get("batch_size", 0)),
        derived_doc="75, and 75 times batchSize with batches",
    )
    unique: Flag = setting("Only the newest record of a key in a batch is handled.", False, key="uniqueListener")
    batch_latency: Seconds = setting("How long a batch waits to be full.", 3.0, key="consumeBatchListenerLatency")
    max_processing_time: Seconds = setting("How long a record or a batch may take before it counts as failed.", 30.0)
    fetch_max_bytes: FetchBytes = setting(FETCH_DOC, MEGABYTE)
    error_consumer_disabled: Flag = setting(
        "Whether the cluster's error consumer leaves this group's error topic alone.", False,
        key="disableErrorConsumer",
    )  # fmt: skip
    offset_initial: Offsets = setting("Where a group without a position begins: newest or oldest.", "newest")
    session_timeout: Seconds = setting(SESSION_DOC, 10.0)
    rebalance_timeout: Seconds = setting(REBALANCE_DOC, 60.0)
    heartbeat_interval: Seconds = setting(HEARTBEAT_DOC, 3.0)
    tracer: Text | None = setting(
        "The name spans of this consumer have.", derived=lambda known: known.get("group_id"), derived_doc="groupId"
    )
    group_protocol: GroupProtocol = setting(GROUP_PROTOCOL_DOC, None)
    retry_backoff: RetryBackoff | None = setting(
        "How long a failed record waits for its next attempt.",
        derived=lambda _: default_backoff(),
        derived_doc="exponential from 1s to 1m, jitter 20%",
    )
    on_failure: OnFailure = setting(
        "What happens to a failed record without an error topic or last step: retry retries it in place until it "
        "succeeds, drop logs it and commits past it.",
        "retry",
    )
    order_by: Annotated[Literal["key", "partition", "none"], choice("key", "partition", "none")] = setting(
        "What is handled one after the other: the records of a key, of a partition, or nothing.", "key"
    )
    lane_hash: Annotated[Literal["key", "murmur2", "bytesum"], choice("key", "murmur2", "bytesum")] = setting(
        "key: a free lane takes any key that is ready; murmur2 and bytesum bind a key to one lane.", "key"
    )
    max_in_flight_bytes: Annotated[int, size(1)] | None = setting("Bytes of records that may be in work at once.", None)
    error_breaker: ErrorBreaker | None = setting(
        "What the consumer does when most calls fail.", derived=lambda _: ErrorBreaker(), derived_doc="action: pause"
    )
    error_stack: Flag = setting("Whether copies in retry and error topics carry the stack of the error.", True)
    ack: Annotated[Literal["auto", "manual"], choice("auto", "manual")] = setting(
        "manual: a record is settled when the handler acknowledges it, not when it returns.", "auto"
    )
    retry_order: RetryOrder = setting(
        RETRY_ORDER_DOC,
        derived=lambda known: "none" if known.get("order_by") == "none" or known.get("ack") == "manual" else "key",
        derived_doc="key; none with orderBy: none or ack: manual",
    )
    lane_classes: LaneClasses = setting(
        "Lanes of their own for kinds of records that the app's routing function names.", derived=lambda _: {}
    )
    commit_interval: Seconds = setting("How often positions are committed.", 1.0)
    audit: Text | None = setting(
        "A directory, or the address of one, for what became of each record: `multilane audit` reads it.", None
    )
    crash_limit: Annotated[int, whole(0, 1_000)] = setting(
        "A record in progress at this many deaths of its process, once alone, goes to the error topic; 0: never.",
        3,
    )
    processes: Annotated[int, whole(0, 1_024)] = setting("Worker processes for handlers that need a CPU.", 0)
    properties: Properties = setting(PROPERTIES_DOC, derived=lambda _: {})

    @model_validator(mode="before")
    @classmethod
    def _zero_is_not_said(cls, values: Any) -> Any:
        """retryCount 0 is the default: 1 with a retry topic, because one that is never read is an error topic."""
        count = values.get("retry_count") if isinstance(values, dict) else None
        text = count.text.strip() if isinstance(count, Scalar) else count
        return {n: v for n, v in values.items() if n != "retry_count"} if text in (0, "0") else values
