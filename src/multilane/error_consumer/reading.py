"""Reads an error topic as it is now, with the marks of what was replayed.

Thread: application (blocking).

The marks are offsets of the group `multilane-errors-replay.<topic>`, with runs beyond them in the commit metadata, and
are held against the log before they count: whoever may commit can write them, and a log can be cut and grow again. Owns
a consumer that joins no group. Never reads beyond the ends that the log had when it was opened.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from multilane.client.consumer import Consumer
from multilane.commit.completion_map import CompletionMap, LogMark, decode, read, write
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
    """What was replayed of these topics by hand. Where that cannot be learnt nothing is taken for replayed."""
    found: dict[TopicPartition, ReplayMarks] = {}
    for topic in topics:
        try:
            with ErrorLog(properties, topic) as opened:
                found |= opened.marks()
        except MultilaneError as error:
            text = "cannot read which records of %s were replayed by hand; they may be given back again: %s"
            log.warning(text, topic, error)
    return found


class ErrorLog:
    """One error topic, from its beginning to where it ends now."""

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
            self._epochs: dict[TopicPartition, int] = {}  # the newest leader epoch that was read or marked
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
        """Every record of the topic, or of a partition from `start` on; each partition in the order of its log."""
        wanted = self.partitions if partition is None else (partition,)
        starts = {p: max(start, self._begins[p]) for p in wanted}
        open_ = {p for p in wanted if starts[p] < self._ends[p]}
        self._consumer.assign(open_)
        for p in open_:
            self._consumer.seek(p, starts[p])
        while open_:
            for block in self._consumer.poll(_POLL_SECONDS):
                place = TopicPartition(block.topic, block.partition)
                end = self._ends[place]
                self._epochs[place] = max(block.leader_epoch, self._epochs.get(place, NO_EPOCH))
                yield from (record for record in block.records() if record.offset < end)
            over = {p for p in open_ if self._consumer.position(p) >= self._ends[p]}
            if over:
                open_ -= over
                self._consumer.assign(open_)

    def record(self, partition: int, offset: int) -> Record | None:
        """The record at an offset; None where there is none (any more)."""
        place = TopicPartition(self.topic, partition)
        if place not in self.partitions or not self._begins[place] <= offset < self._ends[place]:
            return None
        first = next(self.records(place, offset), None)
        return first if first is not None and first.offset == offset else None

    # --- marks -------------------------------------------------------------------------------------------------------

    def marks(self) -> dict[TopicPartition, ReplayMarks]:
        committed = self._consumer.committed(self.partitions)
        found = {
            p: (int(at.offset), read(at.metadata, int(at.offset))) for p, at in committed.items() if at is not None
        }
        claims = {p: _claim(offset, told) for p, (offset, told) in found.items()}
        wrong = misfits(self._consumer, claims)
        for partition, why in wrong.items():
            text = "%s: the marks of what was replayed do not fit the log: %s. They are void: records may be replayed"
            log.warning(text, partition, why)
        made = {}
        for partition in self.partitions:
            marks = ReplayMarks(self._begins[partition])
            if partition in found and partition not in wrong:
                offset, told = found[partition]
                marks = ReplayMarks(offset, told.runs)
                marks.add(marks.frontier, self._begins[partition] - 1)  # what is gone needs no replay
                self._epochs[partition] = NO_EPOCH if told.log is None else told.log.leader_epoch
            made[partition] = marks
        return made

    def check_marks(self, partition: TopicPartition, marks: ReplayMarks) -> None:
        """Raises when these could not be kept: then nothing more should be replayed that would need them."""
        if decode(write(marks.frontier, marks.runs), marks.frontier) != marks.runs:
            raise MarksDoNotFit(
                f"{partition}: what was replayed is scattered over {len(marks.runs)} places, more than can be marked; "
                "replay the older records first, or all of them"
            )

    def keep_marks(self, partition: TopicPartition, marks: ReplayMarks) -> None:
        log_mark = LogMark(self._epochs.get(partition, NO_EPOCH), self._topic_id)
        text = write(marks.frontier, marks.runs, log_mark)
        self._consumer.commit({partition: OffsetAndMetadata(Offset(marks.frontier), metadata=text)})


def _claim(offset: int, told: CompletionMap) -> SettledClaim:
    return SettledClaim(told.runs[-1][1] + 1 if told.runs else offset, told.log)
