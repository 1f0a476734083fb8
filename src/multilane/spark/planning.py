"""Plans what Spark reads: queries the brokers and resolves offsets.

Thread: one at a time: the driver process for a batch, the reader's own process for a stream.

Owns a consumer that fetches nothing. Records missing from a log (deleted by retention, a recreated topic) are an error
unless failOnDataLoss is false; they are never skipped silently.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final

from multilane.client.admin.admin import Admin
from multilane.client.consumer import Consumer
from multilane.clock import Clock, SystemClock
from multilane.errors import BrokerError, ConfigError, DataLoss, MultilaneError
from multilane.logs import logger
from multilane.spark.offset_spec import (
    EARLIEST,
    GROUP,
    LATEST,
    AtTime,
    Exact,
    Named,
    OffsetSpec,
    TopicOffsets,
    Tree,
    epochs_in,
    from_json,
    ids_in,
)
from multilane.spark.options import SourceOptions
from multilane.spark.ranges import Range, admitted, ranges_between
from multilane.spark.truncated_logs import TruncatedLogs
from multilane.types import NO_EPOCH, LeaderEpoch, Offset, OffsetAndEpoch, OffsetAndMetadata, TopicPartition

log = logger(__name__)

_QUIET: Final = {"enable.auto.commit": False}
_UNKNOWN_TOPIC: Final = 3
_PARTITION_REFRESH: Final = 1.0  # seconds


class Planner:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._consumer = Consumer({**options.properties, **_QUIET})
        self._reported: set[str] = set()  # data losses that were logged already
        self._truncated_logs = TruncatedLogs(self._consumer)

    def close(self) -> None:
        self._consumer.close(0)

    # --- a batch -----------------------------------------------------------------------------------------------------

    def whole(self) -> list[Range]:
        """All ranges of a batch read."""
        partitions = self.partitions()
        starts = self.resolve("startingOffsets", self._options.starting, partitions)
        ends = self.resolve("endingOffsets", self._options.ending, partitions)
        backwards = [p for p in partitions if starts[p] > ends[p]]
        if backwards and not isinstance(self._options.ending, Named):
            p = backwards[0]
            raise ConfigError(
                f"{p} would start at {starts[p]} and end at {ends[p]}: check startingOffsets and endingOffsets"
            )
        return ranges_between(starts, ends)

    def partitions(self) -> list[TopicPartition]:
        topics = self._options.topics
        if topics.assigned:
            names = sorted({partition.topic for partition in topics.assigned})
            known = {p for name in names for p in self._partitions_of(name)}
            unknown = sorted(set(topics.assigned) - known)
            if unknown:
                raise ConfigError(f"assign: partition {', '.join(map(str, unknown))} does not exist")
            return sorted(topics.assigned)
        names = self._matching(topics.pattern) if topics.pattern is not None else list(topics.names)
        return [partition for name in names for partition in self._partitions_of(name)]

    def _partitions_of(self, topic: str) -> Collection[TopicPartition]:
        try:
            return self._consumer.partitions_for(topic)
        except BrokerError as error:
            if error.code != _UNKNOWN_TOPIC:
                raise
        raise ConfigError(f"there is no topic {topic!r} on these brokers: create it, or correct its name")

    def _matching(self, pattern: str) -> list[str]:
        with Admin(self._admin_properties()) as admin:
            known = admin.topics()
            # The same rule as TopicSelection.has. Internal topics are read only by name.
            return sorted(name for name in known if re.fullmatch(pattern, name) and not known[name].internal)

    def _admin_properties(self) -> Mapping[str, object]:
        from multilane.config.app.kafka_names import canonical
        from multilane.config.properties import UsedBy

        return canonical(dict(self._options.properties), frozenset({UsedBy.EVERY_CLIENT}))

    # --- offsets -----------------------------------------------------------------------------------------------------

    def resolve(self, option: str, spec: OffsetSpec, partitions: Collection[TopicPartition]) -> TopicOffsets:
        match spec:
            case Named():
                return self._named(spec.word, partitions)
            case AtTime():
                return self._at_time(option, spec, partitions)
            case Exact():
                return self._exact(option, spec, partitions)

    def _named(self, word: str, partitions: Collection[TopicPartition]) -> TopicOffsets:
        if word == EARLIEST:
            return dict(self._consumer.beginning_offsets(partitions))
        if word == LATEST:
            return dict(self._consumer.end_offsets(partitions))
        if word != GROUP:
            raise ValueError(word)
        committed = self._consumer.committed(partitions)
        missing = [p for p in partitions if committed.get(p) is None]
        found = {p: int(at.offset) for p, at in committed.items() if at is not None}
        ends = self._consumer.log_ends(list(found)) if found else {}
        known = {
            p: OffsetAndEpoch(Offset(at.offset), LeaderEpoch(at.leader_epoch))
            for p, at in committed.items()
            if at is not None
        }
        self._move_back(found, {p: at for p, at in known.items() if at.leader_epoch >= 0}, ends)
        for partition, offset in found.items():
            if offset > ends[partition].offset:
                self._lost(f"the group is at {offset} of {partition}, but the log ends at {ends[partition].offset}")
                found[partition] = ends[partition].offset
        return found | self._named(EARLIEST, missing) if missing else found

    def _exact(self, option: str, spec: Exact, partitions: Collection[TopicPartition]) -> TopicOffsets:
        _check_named(option, spec.offsets, partitions)
        found: TopicOffsets = {p: offset for p, offset in spec.offsets.items() if isinstance(offset, int)}
        for word in {offset for offset in spec.offsets.values() if isinstance(offset, str)}:
            found |= self._named(word, [p for p, offset in spec.offsets.items() if offset == word])
        ends = self._named(LATEST, partitions)
        for partition, offset in found.items():
            if offset > ends[partition]:
                self._lost(f"{option} sets {partition} to {offset}, but the log ends at {ends[partition]}")
                found[partition] = ends[partition]
        return found

    def _at_time(self, option: str, spec: AtTime, partitions: Collection[TopicPartition]) -> TopicOffsets:
        if isinstance(spec.times, int):
            times = dict.fromkeys(partitions, spec.times)
        else:
            _check_named(option, spec.times, partitions)
            times = dict(spec.times)
        found = self._consumer.offsets_for_times(times)
        missing = [p for p in partitions if found.get(p) is None]
        if missing and spec.is_strict:
            unmatched = ", ".join(f"{p} from {times[p]} on" for p in missing)
            raise ConfigError(
                f"no record of {unmatched}: choose an earlier time, or set startingOffsetsByTimestampStrategy to latest"
            )
        offsets = {p: int(at.offset) for p, at in found.items() if at is not None}
        return offsets | self._named(LATEST, missing) if missing else offsets

    def _move_back(
        self,
        positions: TopicOffsets,
        known: Mapping[TopicPartition, OffsetAndEpoch],
        ends: Mapping[TopicPartition, OffsetAndEpoch],
    ) -> bool:
        """Moves positions back where a log was truncated below them: it has other records there now. Returns whether
        any log was."""
        cut = self._truncated_logs.find(known, ends)
        for partition, common in cut.items():
            was = f"{partition} was read up to {positions[partition]}, but its log has since been truncated at {common}"
            self._lost(f"{was} (an unclean leader election)")
            positions[partition] = common
        return bool(cut)

    def _lost(self, what: str) -> None:
        """Raises, or logs the loss once and returns where failOnDataLoss is false."""
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}. Set failOnDataLoss to false to continue without the missing records")
        if what not in self._reported:  # Spark polls a hundred times a second
            self._reported.add(what)
            log.warning("%s: continuing without the missing records, because failOnDataLoss is false", what)


class StreamPlanner(Planner):
    """Plans one batch of a stream after the other: the records that arrived since the last one."""

    def __init__(self, options: SourceOptions, clock: Clock | None = None) -> None:
        super().__init__(options)
        self._clock = clock or SystemClock()
        self._known: list[TopicPartition] = []
        self._refresh_at = 0.0
        self._target: TopicOffsets | None = None  # the end of an available-now run
        self._group: Consumer | None = None
        self._committed: TopicOffsets = {}
        self._newest: TopicOffsets = {}
        self._ends: dict[TopicPartition, OffsetAndEpoch] = {}
        self._begins: TopicOffsets = {}  # of the last planned batch
        self._recalled: dict[TopicPartition, OffsetAndEpoch] = {}  # from the last checkpoint
        self._last_batch = float("-inf")
        self._ids: dict[str, str] = {}  # of topics; empty if a topic has none

    def close(self) -> None:
        super().close()
        if self._group is not None:
            self._group.close(0)

    @property
    def newest(self) -> TopicOffsets:
        """The ends of the logs at the last query of the brokers."""
        return dict(self._newest)

    def begin(self) -> TopicOffsets:
        return self.resolve("startingOffsets", self._options.starting, self.partitions())

    def fix_target(self) -> None:
        self._target = self._named(LATEST, self.partitions())

    def latest(self, starts: TopicOffsets, limit: int | None) -> TopicOffsets:
        """Where the next batch ends. Records before `starts` have been processed, so `commitGroup` is committed."""
        starts = self._of_this_query(starts)
        self._ends = self._consumer.log_ends(self._recent_partitions())
        self._newest = {p: int(end.offset) for p, end in self._ends.items()}
        ends = dict(self._newest)
        if self._target is not None:
            ends = {p: min(end, self._target[p]) for p, end in ends.items() if p in self._target}
        known = {p: at for p, at in self._recalled.items() if starts.get(p) == at.offset}
        moved_back = self._move_back(starts, known, self._ends)
        self._check(starts, ends)
        self._commit(starts)
        self._begins = begins = self._with_new(starts, ends)
        if moved_back:  # Spark would read on from its own offset: an empty batch moves it back
            return begins
        ends = {p: max(end, begins[p]) for p, end in ends.items()}
        if self._should_wait(ranges_between(begins, ends)):
            return begins
        if limit is None:
            return ends
        return begins | {one.partition: one.end for one in admitted(ranges_between(begins, ends), limit)}

    def _should_wait(self, ranges: Collection[Range]) -> bool:
        """Whether there are too few records for a batch and the last one is recent; else notes the time of this batch.
        An available-now run never waits."""
        now, wanted = self._clock.monotonic(), self._options.min_offsets or 0
        is_due = self._target is not None or now - self._last_batch >= self._options.trigger_delay
        if not is_due and sum(map(len, ranges)) < wanted:
            return True
        if ranges:
            self._last_batch = now
        return False

    def _recent_partitions(self) -> list[TopicPartition]:
        """The partitions, refreshed once a second: Spark polls a hundred times a second."""
        now = self._clock.monotonic()
        if now >= self._refresh_at:
            self._known = self.partitions()
            self._refresh_at = now + _PARTITION_REFRESH
        return self._known

    def ranges(self, starts: TopicOffsets, ends: TopicOffsets) -> list[Range]:
        ends = self._of_this_query(ends)
        return ranges_between(self._with_new(starts, ends), ends)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def ids_of(self, topics: Collection[str]) -> dict[str, str]:
        unknown = [topic for topic in topics if topic not in self._ids]
        if unknown:
            with Admin(self._admin_properties()) as admin:
                known = admin.topics()
            # A topic that does not exist is remembered too, so that it is not looked up again and again.
            self._ids |= {topic: str(known[topic].id or "") if topic in known else "" for topic in unknown}
        return {topic: self._ids[topic] for topic in topics if self._ids.get(topic)}

    def recall(self, tree: Tree) -> TopicOffsets:
        """The offsets of a checkpoint, without those of recreated topics: such a topic has the old name and none of the
        old records."""
        recorded = ids_in(tree)
        now = self.ids_of(recorded)
        recreated = {topic for topic, known in recorded.items() if now.get(topic, known) != known}
        for topic in sorted(recreated):
            self._lost(f"{topic} was deleted and recreated since it was read")
        found: TopicOffsets = {p: offset for p, offset in from_json(tree).items() if p.topic not in recreated}
        epochs = {p: LeaderEpoch(epoch) for p, epoch in epochs_in(tree).items() if p in found}
        self._recalled = {p: OffsetAndEpoch(Offset(found[p]), epoch) for p, epoch in epochs.items()}
        return found

    def epochs_of(self, offsets: TopicOffsets) -> dict[TopicPartition, int]:
        """Leader epochs to store with these offsets: the recorded ones, or the current ones where the batch reads."""
        known = {p: self._epoch_of(p, offset) for p, offset in offsets.items()}
        return {p: epoch for p, epoch in known.items() if epoch is not None}

    def _epoch_of(self, partition: TopicPartition, offset: int) -> int | None:
        recalled = self._recalled.get(partition)
        if recalled is not None and recalled.offset == offset:  # an unchanged offset stays equal for Spark
            return recalled.leader_epoch
        is_read = self._begins.get(partition) != offset and partition in self._ends
        return self._ends[partition].leader_epoch if is_read else None

    def _of_this_query(self, offsets: TopicOffsets) -> TopicOffsets:
        """The offsets of a checkpoint, without partitions that this query does not read."""
        topics = self._options.topics
        others = sorted(p for p in offsets if not topics.has(p))
        if not others:
            return offsets
        mismatch = f"the checkpoint is of a query that read {', '.join(map(str, others))}, and this one reads {topics}"
        if len(others) == len(offsets):
            raise ConfigError(f"{mismatch}: give it a checkpointLocation of its own")
        self._lost(mismatch)
        return {p: offset for p, offset in offsets.items() if p not in others}

    def _with_new(self, starts: TopicOffsets, ends: TopicOffsets) -> TopicOffsets:
        """Adds new partitions; they are read from their beginning."""
        new = [p for p in ends if p not in starts]
        known = {p: start for p, start in starts.items() if p in ends}
        return known | self._named(EARLIEST, new) if new else known

    def _check(self, starts: TopicOffsets, ends: TopicOffsets) -> None:
        gone = sorted(p for p in starts if p not in self._newest)
        if gone:
            self._lost(f"{', '.join(map(str, gone))} was read and no longer exists")
        for partition, start in starts.items():
            end = ends.get(partition, start)
            if end < start:
                self._lost(f"{partition} was read up to {start}, but its log ends at {end}")
                starts[partition] = end

    def _commit(self, done: TopicOffsets) -> None:
        changed = {p: offset for p, offset in done.items() if self._committed.get(p) != offset}
        if self._options.commit_group is None or not changed:
            return
        if self._group is None:
            self._group = Consumer({**self._options.properties, **_QUIET, "group.id": self._options.commit_group})
        try:
            epochs = {p: OffsetAndMetadata(Offset(at), self._epoch_before(p, at)) for p, at in changed.items()}
            self._group.commit(epochs)
        except MultilaneError as error:
            group = self._options.commit_group
            if not error.retriable:
                raise ConfigError(f"commitGroup {group}: {error}. Give the stream a group without members") from error
            log.warning("cannot commit the last batch for group %s yet: %s", group, error)
        else:
            self._committed |= changed

    def _epoch_before(self, partition: TopicPartition, offset: int) -> LeaderEpoch:
        """Lets a reader that starts at the group notice a truncated log: the epoch recorded with the position, or that
        of the leader which has the log up to there."""
        recalled = self._recalled.get(partition)
        if recalled is not None and recalled.offset == offset:
            return recalled.leader_epoch
        return self._ends[partition].leader_epoch if partition in self._ends else NO_EPOCH


def _check_named(option: str, given: Mapping[TopicPartition, object], partitions: Collection[TopicPartition]) -> None:
    missing, unknown = sorted(set(partitions) - given.keys()), sorted(given.keys() - set(partitions))
    if missing or unknown:
        problems = [f"{', '.join(map(str, missing))} missing"] if missing else []
        problems += [f"{', '.join(map(str, unknown))} not read at all"] if unknown else []
        raise ConfigError(f"{option} has to name exactly the partitions that are read: {'; '.join(problems)}")
