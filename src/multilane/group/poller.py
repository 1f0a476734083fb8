"""Polls consumer groups: queries brokers for their members, their commits, and the ends of their logs.

Thread: application.

Commits are queried before the ends of logs, so a lag is never negative. Writes nothing and joins no group. A group or
topic that does not exist yet is part of the snapshot, not an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Final, Self

from multilane.client.admin.admin import Admin
from multilane.client.admin.answers import CommittedOffset, GroupDescription, TopicDescription
from multilane.clock import Clock, SystemClock
from multilane.commit.completion_map import read
from multilane.commit.trigger_positions import Position
from multilane.errors import BrokerError
from multilane.group.failures import of_copies
from multilane.group.newest_errors import NewestErrors
from multilane.group.snapshot import GroupSnapshot, MemberSnapshot, PartitionSnapshot, Subject
from multilane.types import TopicPartition

_UNKNOWN_TOPIC: Final = 3
_NO_SUCH_GROUP: Final = 69

KnownGroup = tuple[GroupDescription | None, Mapping[TopicPartition, CommittedOffset]]


class GroupPoller:
    """`clusters` has the admin client properties of each cluster that the subjects name."""

    def __init__(
        self,
        subjects: Iterable[Subject],
        clusters: Mapping[str, Mapping[str, object]],
        clock: Clock | None = None,
    ) -> None:
        self._subjects = tuple(subjects)
        self._clock = clock or SystemClock()
        self._admins = {name: Admin(clusters[name]) for name in {s.cluster: None for s in self._subjects}}
        self._newest = {name: NewestErrors(clusters[name], self._clock) for name in self._admins}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        for newest in self._newest.values():
            newest.close()
        for admin in self._admins.values():
            admin.close()

    def look(self) -> list[GroupSnapshot]:
        """A snapshot of each subject, in their order."""
        found: dict[Subject, GroupSnapshot] = {}
        for cluster, admin in self._admins.items():
            here = [subject for subject in self._subjects if subject.cluster == cluster]
            found |= self._with_errors(cluster, self._look(admin, here))
        return [found[subject] for subject in self._subjects]

    def _look(self, admin: Admin, subjects: Collection[Subject]) -> dict[Subject, GroupSnapshot]:
        groups = {group: _known(admin, group) for group in {subject.group: None for subject in subjects}}
        at = self._clock.monotonic()
        triggers = {subject: _triggers_of(subject, groups[subject.group][1]) for subject in subjects}
        every = [*subjects, *(trigger for found in triggers.values() for trigger in found)]
        topics = {subject: subject.topics or _topics_of(*groups[subject.group]) for subject in every}
        errors = {subject.error for subject in every if subject.error is not None}
        described = _described(admin, {topic for named in topics.values() for topic in named} | errors)
        led = [
            TopicPartition(topic.name, partition.number)
            for topic in described.values()
            for partition in topic.partitions
            if partition.leader is not None
        ]
        ends, begins = admin.offsets(led, "latest"), admin.offsets(led, "earliest")
        bounds = {p: (int(b.offset), int(e.offset)) for p in led if (b := begins[p]) and (e := ends[p])}
        snapshots = {
            subject: _with_dead(
                _snapshot(subject, at, groups[subject.group], [(t, described.get(t)) for t in topics[subject]], bounds),
                described.get(subject.error or ""),
                bounds,
            )
            for subject in every
        }
        return {
            subject: replace(snapshots[subject], triggers=tuple(snapshots[trigger] for trigger in triggers[subject]))
            for subject in subjects
        }

    def _with_errors(self, cluster: str, found: Mapping[Subject, GroupSnapshot]) -> dict[Subject, GroupSnapshot]:
        """Adds the errors of the newest copies."""
        every = [one for snapshot in found.values() for one in (snapshot, *snapshot.triggers)]
        bounds = {p: known for snapshot in every for p in of_copies(snapshot) if (known := _bounds(snapshot, p))}
        newest = self._newest[cluster].look(bounds)

        def with_newest(snapshot: GroupSnapshot) -> GroupSnapshot:
            subject = snapshot.subject
            heads = newest.get(subject.retry or "", ()) + newest.get(subject.error or "", ())
            return replace(snapshot, newest=heads, triggers=tuple(map(with_newest, snapshot.triggers)))

        return {subject: with_newest(snapshot) for subject, snapshot in found.items()}


def _known(admin: Admin, group: str) -> KnownGroup:
    """The coordinator's description of the group (None if there is no such group), and its commits."""
    try:
        description = admin.describe_groups([group])[group]
    except BrokerError as error:
        if error.code != _NO_SUCH_GROUP:
            raise
        return None, {}
    return description, admin.group_offsets(group)


def _triggers_of(subject: Subject, committed: Mapping[TopicPartition, CommittedOffset]) -> tuple[Subject, ...]:
    """The triggers of the configuration, and others that the group's commits name."""
    known = {trigger.name for trigger in subject.triggers} | {subject.name}
    topics: dict[str, set[str]] = {}
    for partition, commit in committed.items():
        if subject.topics and partition.topic not in subject.topics:
            continue
        for name in read(commit.metadata, int(commit.offset)).positions:
            topics.setdefault(name, set()).add(partition.topic)
    others = [
        Subject(name, subject.group, subject.cluster, tuple(sorted(own)), is_trigger=True)
        for name, own in sorted(topics.items())
        if name not in known
    ]
    return (*subject.triggers, *others)


def _topics_of(group: GroupDescription | None, committed: Iterable[TopicPartition]) -> tuple[str, ...]:
    names = {partition.topic for partition in committed}
    for member in group.members if group is not None else ():
        names |= {partition.topic for partition in member.assignment or ()} | set(member.subscription)
    return tuple(sorted(names))


def _described(admin: Admin, names: Collection[str]) -> dict[str, TopicDescription]:
    """The topics that exist. A request about all of them fails as soon as one does not exist."""
    try:
        return admin.topics(names)
    except BrokerError as error:
        if error.code != _UNKNOWN_TOPIC:
            raise
    if len(names) == 1:
        return {}
    found: dict[str, TopicDescription] = {}
    for name in names:
        found |= _described(admin, (name,))
    return found


def _snapshot(
    subject: Subject,
    at: float,
    known: KnownGroup,
    topics: Iterable[tuple[str, TopicDescription | None]],
    bounds: Mapping[TopicPartition, tuple[int, int]],
) -> GroupSnapshot:
    group, committed = known
    snapshots = {}
    missing = []
    absent: tuple[int, ...] = ()
    for name, topic in topics:
        if topic is None:
            missing.append(name)
            continue
        for described in topic.partitions:
            partition = TopicPartition(name, described.number)
            found = _settled_of(subject, committed.get(partition))
            snapshots[partition] = _partition_snapshot(found, *bounds.get(partition, (None, None)))
            absent += () if found is None or found.absent_since is None else (found.absent_since,)
    return GroupSnapshot(
        subject=subject,
        at=at,
        is_there=group is not None,
        protocol=group.type if group is not None else "",
        state=group.state if group is not None else "",
        members=tuple(
            MemberSnapshot(m.id, m.client_id, m.host.removeprefix("/"), m.assignment) for m in group.members
        ) if group is not None else (),
        partitions=snapshots,
        missing=tuple(missing),
        absent_since=min(absent, default=None),
    )  # fmt: skip


def _with_dead(
    snapshot: GroupSnapshot, error: TopicDescription | None, bounds: Mapping[TopicPartition, tuple[int, int]]
) -> GroupSnapshot:
    if snapshot.subject.error is None:
        return snapshot
    if error is None:
        return replace(snapshot, missing=(*snapshot.missing, snapshot.subject.error))
    partitions = [TopicPartition(error.name, described.number) for described in error.partitions]
    return replace(snapshot, dead={p: PartitionSnapshot(*bounds.get(p, (None, None))) for p in partitions})


def _bounds(snapshot: GroupSnapshot, partition: TopicPartition) -> tuple[int, int] | None:
    current = snapshot.dead.get(partition) or snapshot.partitions[partition]
    return None if current.begin is None or current.end is None else (current.begin, current.end)


def _settled_of(subject: Subject, committed: CommittedOffset | None) -> Position | None:
    """What the group has settled, or the trigger. One that the commit does not name begins where the group is."""
    if committed is None:
        return None
    text = read(committed.metadata, int(committed.offset))
    if not subject.is_trigger or not text.positions:
        return Position(int(committed.offset), text.runs)
    return text.positions.get(subject.name) or Position(int(committed.offset))


def _partition_snapshot(settled: Position | None, begin: int | None, end: int | None) -> PartitionSnapshot:
    if settled is None:
        return PartitionSnapshot(begin, end)
    known = settled.offset if end is None else end  # records beyond the log's end cannot be settled
    runs = [(first, min(last, known - 1)) for first, last in settled.runs if first < known]
    return PartitionSnapshot(begin, end, settled.offset, sum(last - first + 1 for first, last in runs))
