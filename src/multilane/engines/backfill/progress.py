"""The plan of a backfill, its progress, and its failed records.

Thread: none (pure); one owner.

The plan is made once. The positions move as tasks report: everything below the offset of a position is
settled, and so are its runs. A report has positions together with the records that failed up to there, so every settled
record that failed is listed. It also has the newest leader epoch that was read, so that a later run can check the
positions against the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Final

from multilane.commit.runs import SettledOffsets
from multilane.engines.backfill.bounds import OffsetRange
from multilane.engines.batches.messages import Json
from multilane.errors import ConfigError
from multilane.outcome.in_place import ExhaustedRecord

_FORMAT: Final = 1
_DAMAGED: Final = (KeyError, TypeError, ValueError, AttributeError)  # raised for a file that was edited


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """What to do: fixed when a backfill is created."""

    consumer: str  # its name in the configuration
    group: str
    topic: str
    topic_id: str | None  # None: the brokers have no topic ids
    begin: str  # as requested
    end: str
    offset_ranges: Mapping[int, OffsetRange]  # by partition

    def to_json(self) -> Json:
        fields = asdict(self)
        ranges = {str(partition): [start, end] for partition, (start, end) in fields.pop("offset_ranges").items()}
        return {"format": _FORMAT, **fields, "stretches": ranges}

    def difference(self, **requested: str | None) -> str | None:
        """The first requested value that differs from the plan, as text. None values are not compared."""
        given = [(name, getattr(self, name), text) for name, text in requested.items() if text is not None]
        return next((f"{_LABELS[name]} {known}, not {text}" for name, known, text in given if known != text), None)


_LABELS: Final = {
    "consumer": "of consumer",
    "group": "of group",
    "topic": "of topic",
    "topic_id": "of a topic of the same name that was deleted since, with the id",
    "begin": "from",
    "end": "to",
}


def plan_from(saved: Json) -> BackfillPlan:
    check_format(saved)
    try:
        named = {name: saved[name] for name in ("consumer", "group", "topic", "topic_id", "begin", "end")}
        ranges = saved["stretches"]
        return BackfillPlan(**named, offset_ranges={int(p): (start, end) for p, (start, end) in ranges.items()})
    except _DAMAGED as error:
        raise ConfigError(f"plan.json is damaged: start a new backfill with another --state ({error!r})") from error


def check_format(saved: Json) -> None:
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise ConfigError(
            "the state was written by another version of multilane: continue with that version, or start a new backfill"
        )


@dataclass(frozen=True, slots=True)
class ProgressReport:
    """What a task has done since its last one."""

    positions: Mapping[int, SettledOffsets]  # by partition
    settled: int = 0  # records, including failed ones
    failed: tuple[ExhaustedRecord, ...] = ()
    epochs: Mapping[int, int] = field(default_factory=dict)  # the newest leader epoch that was read, by partition

    def to_json(self) -> Json:
        return {
            "places": positions_to_json(self.positions),
            "epochs": epochs_to_json(self.epochs),
            "settled": self.settled,
            "failed": [asdict(one) for one in self.failed],
        }


def report_from(message: Json) -> ProgressReport:
    failed = tuple(ExhaustedRecord(**one) for one in message["failed"])
    return ProgressReport(positions_from(message["places"]), message["settled"], failed, epochs_from(message))


def positions_to_json(positions: Mapping[int, SettledOffsets]) -> Json:
    return {str(partition): [offset, [list(run) for run in runs]] for partition, (offset, runs) in positions.items()}


def positions_from(saved: Json) -> dict[int, SettledOffsets]:
    return {
        int(partition): (offset, tuple((first, last) for first, last in runs))
        for partition, (offset, runs) in saved.items()
    }


def epochs_to_json(epochs: Mapping[int, int]) -> Json:
    return {str(partition): epoch for partition, epoch in epochs.items()}


def epochs_from(saved: Json) -> dict[int, int]:
    """Earlier versions wrote none."""
    return {int(partition): epoch for partition, epoch in saved.get("epochs", {}).items()}


@dataclass(slots=True)
class BackfillProgress:
    plan: BackfillPlan
    positions: dict[int, SettledOffsets]
    records: int = 0  # settled so far, in all runs
    seconds: float = 0.0  # of work, in all runs
    pass_number: int = 1  # increases when the failed records are reprocessed
    failed: set[tuple[int, int]] = field(default_factory=set)  # partition and offset, of this pass
    epochs: dict[int, int] = field(default_factory=dict)  # the newest leader epoch that was read, by partition

    def note(self, report: ProgressReport) -> tuple[ExhaustedRecord, ...]:
        """Apply a report. Returns the failed records that are new."""
        fresh = tuple({(one.partition, one.offset): one for one in report.failed}.values())
        fresh = tuple(one for one in fresh if (one.partition, one.offset) not in self.failed)
        self.failed |= {(one.partition, one.offset) for one in fresh}
        for partition, position in report.positions.items():
            self.positions[partition] = _before(self.plan.offset_ranges[partition][1], position)
        for partition, epoch in report.epochs.items():
            self.epochs[partition] = max(epoch, self.epochs.get(partition, epoch))
        self.records += report.settled
        return fresh

    def settled_until(self, partition: int) -> int | None:
        """The offset after the last settled record; None if none is settled."""
        offset, runs = self.positions[partition]
        until = runs[-1][1] + 1 if runs else offset
        return until if until > self.plan.offset_ranges[partition][0] else None

    def begin_again(self, partition: int) -> None:
        """Restart a partition: the saved progress belongs to a log that no longer exists."""
        self.positions[partition] = self.plan.offset_ranges[partition][0], ()
        self.epochs.pop(partition, None)

    @property
    def open_partitions(self) -> list[int]:
        return [partition for partition in sorted(self.positions) if self.remaining_of(partition)]

    @property
    def is_through(self) -> bool:
        return not self.open_partitions

    @property
    def remaining(self) -> int:
        """Number of offsets: at least the number of records."""
        return sum(map(self.remaining_of, self.positions))

    def remaining_of(self, partition: int) -> int:
        offset, runs = self.positions[partition]
        end = self.plan.offset_ranges[partition][1]
        return max(0, end - offset - sum(last - first + 1 for first, last in runs))

    def is_settled(self, partition: int, offset: int) -> bool:
        known, runs = self.positions[partition]
        return offset < known or any(first <= offset <= last for first, last in runs)

    def skip_to(self, partition: int, first: int) -> int:
        """Skip to the new beginning of the log. Returns the number of skipped offsets."""
        before = self.remaining_of(partition)
        offset, runs = self.positions[partition]
        kept = tuple((max(begin, first), last) for begin, last in runs if last >= first)
        if kept and kept[0][0] == first:
            first, kept = kept[0][1] + 1, kept[1:]
        self.positions[partition] = _before(self.plan.offset_ranges[partition][1], (max(offset, first), kept))
        return before - self.remaining_of(partition)

    def begin_pass_over_failed(self) -> None:
        """Reprocess only the failed records of a finished backfill."""
        for partition, (_, end) in self.plan.offset_ranges.items():
            offsets = sorted(offset for failed_in, offset in self.failed if failed_in == partition)
            edges = [*offsets, end]
            gaps = [(low + 1, high - 1) for low, high in zip(offsets, edges[1:], strict=True) if high - low > 1]
            self.positions[partition] = edges[0], tuple(gaps)
        self.pass_number += 1
        self.failed = set()

    def shares(self, tasks: int) -> list[list[int]]:
        """The open partitions for this many tasks or fewer: the largest first, each to the task with the least."""
        loads: list[tuple[int, list[int]]] = [(0, []) for _ in range(min(tasks, len(self.open_partitions)))]
        for partition in sorted(self.open_partitions, key=self.remaining_of, reverse=True):
            least = min(range(len(loads)), key=lambda task: loads[task][0])
            load, share = loads[least]
            loads[least] = load + self.remaining_of(partition), [*share, partition]
        return [sorted(share) for _, share in loads]

    def to_json(self) -> Json:
        return {
            "format": _FORMAT,
            "round": self.pass_number,
            "records": self.records,
            "failed": len(self.failed),
            "remaining": self.remaining,
            "seconds": round(self.seconds, 3),
            "places": positions_to_json(self.positions),
            "epochs": epochs_to_json(self.epochs),
        }


def new_progress(plan: BackfillPlan) -> BackfillProgress:
    return BackfillProgress(plan, {partition: (start, ()) for partition, (start, _) in plan.offset_ranges.items()})


def progress_from(plan: BackfillPlan, saved: Json) -> BackfillProgress:
    check_format(saved)
    try:
        positions, epochs = positions_from(saved["places"]), epochs_from(saved)
        progress = BackfillProgress(plan, positions, saved["records"], saved["seconds"], saved["round"], epochs=epochs)
        is_sound = positions.keys() == plan.offset_ranges.keys() and all(
            _is_sound(positions[p], offset_range) for p, offset_range in plan.offset_ranges.items()
        )
    except _DAMAGED:
        is_sound = False
    if not is_sound or not all(type(n) is int for n in (progress.records, progress.pass_number, *epochs.values())):
        raise ConfigError("the offsets in progress.json are damaged: start a new backfill with another --state")
    return progress


def _is_sound(position: SettledOffsets, offset_range: OffsetRange) -> bool:
    """Whether the position is within the range, and its runs are ordered and separate, as they are written."""
    offset, runs = position
    edges = [offset, *(edge for first, last in runs for edge in (first, last + 1))]
    is_ordered = all(type(edge) is int for edge in edges) and edges == sorted(set(edges))
    return is_ordered and offset_range[0] <= offset and edges[-1] <= offset_range[1]


def _before(end: int, position: SettledOffsets) -> SettledOffsets:
    """Cut the position at the end of the range."""
    offset, runs = position
    return min(offset, end), tuple((first, min(last, end - 1)) for first, last in runs if first < end)
