"""What the error consumer does with each record of an error topic, and when a run is over.

Thread: none (pure).

Records of a partition are judged in log order. `WaitUntilDue` and `KeepRecord` end the partition for this run: nothing
behind such a record is touched. With a dead topic no record is kept, so one record cannot stop a partition. The
configuration decides where a record goes; its header may only choose among the topics that use this error topic. Owns
the state of a run's partitions. Never drops a record because its target is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from multilane.outcome.headers import (
    ERROR_COUNT,
    RETRY_COUNT,
    SUSPECTED_POISON,
    error_count,
    last_value,
    number,
    replaced,
    target_topic,
)
from multilane.outcome.next_step import Publish, RetryPolicy, moved
from multilane.wire.records.record import Headers, Record


@dataclass(frozen=True, slots=True)
class Republish:
    """Give the record back to its topic."""

    copy: Publish


@dataclass(frozen=True, slots=True)
class Handle:
    """Pass the record to the error function of the group that it belongs to."""

    retry_policy: RetryPolicy


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The record had too many rounds: it goes to the last step, or to the dead topic."""

    reason: str


@dataclass(frozen=True, slots=True)
class WaitUntilDue:
    """The record is too new: this partition ends before it, for this run."""

    age: float


@dataclass(frozen=True, slots=True)
class KeepRecord:
    """The record cannot go anywhere now: it stays, this partition stops before it, and the log says why."""

    reason: str


@dataclass(frozen=True, slots=True)
class MoveToDead:
    """The record cannot go anywhere as it is: it goes to the dead topic, and the partition continues."""

    copy: Publish
    reason: str


Verdict = Republish | Handle | GiveUp | WaitUntilDue | KeepRecord | MoveToDead


@dataclass(frozen=True, slots=True)
class ErrorTopic:
    """One error topic: where its records may go back to, and which groups they belong to."""

    topic: str
    targets: frozenset[str]  # a header may choose one of these
    default: str | None = None  # for a record without the header; None if it would be a guess
    fixed: str | None = None  # a shovel's targetTopic: the header is ignored
    owners: Mapping[str, frozenset[RetryPolicy]] = field(default_factory=dict)  # of each target
    custom: frozenset[RetryPolicy] = frozenset()  # groups with an error function
    sole: RetryPolicy | None = None  # the only group that uses the topic


@dataclass(frozen=True, slots=True)
class ErrorRules:
    """Times are in seconds."""

    topics: Mapping[str, ErrorTopic]
    max_error_count: int = 1
    close_when_no_message: float = 300.0
    close_when_message_is_new: float = 300.0
    dead: str | None = None
    counts_rounds: bool = False  # for shovels: X-ErrorCount grows by one each time


def error_topics(retry_policies: Iterable[RetryPolicy], custom: Iterable[RetryPolicy] = ()) -> dict[str, ErrorTopic]:
    """The error topics of these groups. Several groups may share one: then the header chooses among their topics, and
    so which group's error function gets the record."""
    sharing: dict[str, set[RetryPolicy]] = {}
    for retry_policy in retry_policies:
        if retry_policy.error is not None:
            sharing.setdefault(retry_policy.error, set()).add(retry_policy)
    own = frozenset(custom)
    return {topic: _shared(topic, frozenset(users), own) for topic, users in sorted(sharing.items())}


def _shared(topic: str, users: frozenset[RetryPolicy], custom: frozenset[RetryPolicy]) -> ErrorTopic:
    backs = {retry_policy.target for retry_policy in users}
    owners = {t: frozenset(f for f in users if t in (f.main, f.retry)) for t in backs | {f.main for f in users}}
    return ErrorTopic(
        topic,
        frozenset(owners),
        default=next(iter(backs)) if len(backs) == 1 else None,
        owners=owners,
        custom=users & custom,
        sole=next(iter(users)) if len(users) == 1 else None,
    )


def shovel_topics(topics: Iterable[str], target: str | None, allowed: Iterable[str]) -> dict[str, ErrorTopic]:
    """The topics of a shovel: all records go to one target, or each to the topic in its header, if `allowed`."""
    targets = frozenset(allowed)
    return {topic: ErrorTopic(topic, targets, fixed=target) for topic in topics}


def judge(rules: ErrorRules, record: Record, now_ms: int) -> Verdict:
    """What to do with a record, if no record before it has ended the partition."""
    age = (now_ms - record.timestamp) / 1_000
    # A clock that runs slightly ahead makes a record new; a clock that is wrong by more must not block it for years.
    if abs(age) < rules.close_when_message_is_new:
        return WaitUntilDue(age)
    if (crashes := last_value(record.headers, SUSPECTED_POISON)) is not None:
        times = crashes[:10].decode("ascii", "replace")
        return GiveUp(f"it probably crashes its process ({times} deaths): replay it by hand once the cause is fixed")
    rounds = error_count(record.headers)
    if rounds > rules.max_error_count:
        return GiveUp(f"it came back {rounds} times; the limit is {rules.max_error_count} (maxErrorCount)")
    source = rules.topics.get(record.topic)
    if source is None:
        return KeepRecord(f"{record.topic} is not configured as an error topic")
    verdict = _give_back(rules, source, record)
    if isinstance(verdict, KeepRecord) and rules.dead is not None:
        return MoveToDead(moved(record, rules.dead, record.headers), verdict.reason)
    return verdict


def _give_back(rules: ErrorRules, source: ErrorTopic, record: Record) -> Republish | Handle | KeepRecord:
    if source.sole is not None and source.sole in source.custom:
        return Handle(source.sole)
    target = choose_target(source, record.headers)
    if isinstance(target, KeepRecord):
        return target
    owners = source.owners.get(target, frozenset())
    if not owners & source.custom:
        headers = republished_headers(record.headers, counts_round=rules.counts_rounds)
        return Republish(moved(record, target, headers))
    if len(owners) == 1:
        return Handle(next(iter(owners)))
    return KeepRecord(f"{target} belongs to several groups, and they differ in who handles their errors")


def choose_target(source: ErrorTopic, headers: Headers) -> str | KeepRecord:
    """The topic that a record goes back to. The configuration lists the topics, the header only chooses one of them."""
    if source.fixed is not None:
        return source.fixed
    wanted = target_topic(headers)
    if wanted is not None and wanted in source.targets:
        return wanted
    if wanted is not None:
        return KeepRecord(
            f"its X-TargetTopic {wanted!r} is not one of {_listed(source.targets)}, which use {source.topic}; "
            "configure that topic, or replay the record by hand"
        )
    if source.default is not None:
        return source.default
    return KeepRecord(
        f"it names no X-TargetTopic, and {source.topic} serves {_listed(source.targets)}: replay it by hand"
    )


def _listed(topics: frozenset[str]) -> str:
    return ", ".join(sorted(topics)) or "no topic"


def republished_headers(headers: Headers, *, counts_round: bool = False) -> Headers:
    """The headers of a record that gets another round: its retries start over, its rounds still count."""
    changes: dict[str, bytes | None] = {RETRY_COUNT: None, SUSPECTED_POISON: None}
    if counts_round:
        changes[ERROR_COUNT] = number(error_count(headers) + 1)
    return replaced(headers, changes)


@dataclass(slots=True)
class PartitionRun:
    """One partition in a run: when its last record came, and why it is finished."""

    since: float
    finished: str | None = None

    def note_record(self, now: float) -> None:
        self.since = now

    def is_idle(self, rules: ErrorRules, now: float) -> bool:
        return now - self.since >= rules.close_when_no_message


@dataclass(slots=True)
class RedriveRun:
    """A run of the error consumer in one member: which of its partitions are finished, and so whether it is over.

    A partition that is assigned later, because another member left, starts its own idle time.
    """

    rules: ErrorRules
    began: float
    partitions: dict[tuple[str, int], PartitionRun] = field(default_factory=dict)

    def assign(self, partitions: Iterable[tuple[str, int]], now: float) -> None:
        self.began = now  # a member without partitions counts its idle time from the last rebalance
        self.partitions.update({partition: PartitionRun(now) for partition in partitions})

    def revoke(self, partitions: Iterable[tuple[str, int]], now: float) -> None:
        self.began = now
        for partition in partitions:
            self.partitions.pop(partition, None)

    def is_finished(self, partition: tuple[str, int]) -> bool:
        partition_run = self.partitions.get(partition)
        return partition_run is None or partition_run.finished is not None

    def finish(self, partition: tuple[str, int], reason: str) -> None:
        partition_run = self.partitions.get(partition)
        if partition_run is not None and partition_run.finished is None:
            partition_run.finished = reason

    def note_record(self, partition: tuple[str, int], now: float) -> None:
        partition_run = self.partitions.get(partition)
        if partition_run is not None:
            partition_run.note_record(now)

    def finish_idle(self, now: float) -> list[tuple[str, int]]:
        """Finish partitions that got no record for too long. Call it once their last record is settled."""
        idle = [p for p, a in self.partitions.items() if a.finished is None and a.is_idle(self.rules, now)]
        for partition in idle:
            self.finish(partition, "no message arrived")
        return idle

    def is_over(self, now: float) -> bool:
        if not self.partitions:
            return now - self.began >= self.rules.close_when_no_message
        return all(partition.finished is not None for partition in self.partitions.values())
