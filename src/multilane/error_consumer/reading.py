"""Reads an error topic as it is now, with the marks of the records that were replayed.

Thread: application (blocking).

The marks are offsets of the group `multilane-errors-replay.<topic>`, with runs beyond them in the commit metadata. They
are checked against the log before they count: anyone who may commit can write them, and a log can be truncated and grow
again. Owns a consumer that joins no group. Never reads beyond the ends that the log had when it was opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from multilane.client.consumer import Consumer
from multilane.commit.completion_map import CompletionMap, LogIdentity, decode, read, write
from multilane.commit.log_fit import SettledClaim
from multilane.errors import MarksDoNotFit, MultilaneError
from multilane.lanes.log_claims import misfits
from multilane.logs import logger
from multilane.outcome.redrive import ReplayMarks
from multilane.types import NO_EPOCH, Offset, OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from multilane.wire.records.record import Record

log = logger(__name__)

GROUP_PREFIX: Final = "multilane-errors-replay."
_POLL_SECONDS: Final = 0.5


def replayed_marks(properties: Mapping[str, object], topics: Iterable[str]) -> dict[TopicPartition, ReplayMarks]:
    """The marks of manual replays of these topics. If they cannot be read, no record counts as replayed."""
    found: dict[TopicPartition, ReplayMarks] = {}
    for topic in topics:
        try:
            with ErrorLog(properties, topic) as opened:
                found |= opened.marks()
        except MultilaneError as error:
            text = "cannot read which records of %s were replayed manually; they may be republished: %s"
            log.warning(text, topic, error)
    return found


class ErrorLog:
    """One error topic, from its beginning to its current end."""

    def __init__(self, properties: Mapping[str, object], topic: str, partitions: Collection[int] | None = None) -> None:
        self.topic = topic
        own = {"group.id": GROUP_PREFIX + topic, "enable.auto.commit": False, "auto.offset.reset": "earliest"}
        self._consumer = Consumer({**properties, **own})
        try:
            found = self._consumer.partitions_for(topic)
            self.partitions = tuple(p for p in found if partitions is None or p.partition in partitions)
            self._begins = self._consumer.beginning_offsets(self.partitions)
            self._ends = self._consumer.end_offsets(self.partitions)
            self._topic_id = self._consumer.topic_ids([topic]).get(topic)
            self._epochs: dict[TopicPartition, int] = {}  # the newest leader epoch read or marked
        except BaseException:
            self._consumer.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._consumer.close()

    # --- records -----------------------------------------------------------------------------------------------------

    def records(self, partition: TopicPartition | None = None, start: int = 0) -> Iterator[Record]:
        """Every record of the topic, or of one partition from `start` on, in offset order within each partition."""
        wanted = self.partitions if partition is None else (partition,)
        starts = {p: max(start, self._begins[p]) for p in wanted}
        open_ = {p for p in wanted if starts[p] < self._ends[p]}
        self._consumer.assign(open_)
        for p in open_:
            self._consumer.seek(p, starts[p])
        while open_:
            for block in self._consumer.poll(_POLL_SECONDS):
                source = TopicPartition(block.topic, block.partition)
                end = self._ends[source]
                self._epochs[source] = max(block.leader_epoch, self._epochs.get(source, NO_EPOCH))
                yield from (record for record in block.records() if record.offset < end)
            finished = {p for p in open_ if self._consumer.position(p) >= self._ends[p]}
            if finished:
                open_ -= finished
                self._consumer.assign(open_)

    def record(self, partition: int, offset: int) -> Record | None:
        """The record at an offset; None if there is none, or no longer."""
        wanted = TopicPartition(self.topic, partition)
        if wanted not in self.partitions or not self._begins[wanted] <= offset < self._ends[wanted]:
            return None
        first = next(self.records(wanted, offset), None)
        return first if first is not None and first.offset == offset else None

    # --- marks -------------------------------------------------------------------------------------------------------

    def marks(self) -> dict[TopicPartition, ReplayMarks]:
        committed = self._consumer.committed(self.partitions)
        found = {
            p: (int(one.offset), read(one.metadata, int(one.offset))) for p, one in committed.items() if one is not None
        }
        claims = {p: _claim(offset, settled) for p, (offset, settled) in found.items()}
        wrong = misfits(self._consumer, claims)
        for partition, why in wrong.items():
            text = "%s: the replay marks do not match the log: %s. Ignoring them: records may be replayed again"
            log.warning(text, partition, why)
        by_partition = {}
        for partition in self.partitions:
            marks = ReplayMarks(self._begins[partition])
            if partition in found and partition not in wrong:
                offset, settled = found[partition]
                marks = ReplayMarks(offset, settled.runs)
                marks.add(marks.frontier, self._begins[partition] - 1)  # deleted records need no replay
                self._epochs[partition] = NO_EPOCH if settled.log is None else settled.log.leader_epoch
            by_partition[partition] = marks
        return by_partition

    def check_marks(self, partition: TopicPartition, marks: ReplayMarks) -> None:
        """Raise MarksDoNotFit if the metadata of a commit cannot hold these marks. Call it before the replay."""
        if decode(write(marks.frontier, marks.runs), marks.frontier) != marks.runs:
            raise MarksDoNotFit(
                f"{partition}: the replayed records form {len(marks.runs)} separate ranges, more than can be marked: "
                "replay the older records first, or all of them"
            )

    def keep_marks(self, partition: TopicPartition, marks: ReplayMarks) -> None:
        log_identity = LogIdentity(self._epochs.get(partition, NO_EPOCH), self._topic_id)
        text = write(marks.frontier, marks.runs, log_identity)
        self._consumer.commit({partition: OffsetAndMetadata(Offset(marks.frontier), metadata=text)})


def _claim(offset: int, settled: CompletionMap) -> SettledClaim:
    return SettledClaim(settled.runs[-1][1] + 1 if settled.runs else offset, settled.log)
