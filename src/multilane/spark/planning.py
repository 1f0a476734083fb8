"""Asks brokers what there is to read, and plans it.

Thread: whichever plans: the driver's process for a batch, the reader's own process for a stream; one at a time.

Owns a consumer that fetches nothing. What is missing from a log (cut off by retention, a topic made anew) is an error
unless the options say otherwise; it is never passed over in silence.
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
from multilane.spark.cut_logs import CutLogs
from multilane.spark.offset_spec import (
    EARLIEST,
    GROUP,
    LATEST,
    AtTime,
    Exact,
    Named,
    Offsets,
    OffsetSpec,
    Tree,
    epochs_in,
    from_json,
    ids_in,
)
from multilane.spark.options import SourceOptions
from multilane.spark.ranges import Range, admitted, ranges_between
from multilane.types import NO_EPOCH, LeaderEpoch, Offset, OffsetAndEpoch, OffsetAndMetadata, TopicPartition

log = logger(__name__)

_QUIET: Final = {"enable.auto.commit": False}
_UNKNOWN_TOPIC: Final = 3
_LOOK_FOR_PARTITIONS: Final = 1.0  # seconds


class Planner:
    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._consumer = Consumer({**options.properties, **_QUIET})
        self._told: set[str] = set()  # losses with which one goes on
        self._cut_logs = CutLogs(self._consumer)

    def close(self) -> None:
        self._consumer.close(0)

    # --- a batch -----------------------------------------------------------------------------------------------------

    def whole(self) -> list[Range]:
        """All that a batch read is for."""
        partitions = self.partitions()
        starts = self.resolve("startingOffsets", self._options.starting, partitions)
        ends = self.resolve("endingOffsets", self._options.ending, partitions)
        backwards = [p for p in partitions if starts[p] > ends[p]]
        if backwards and not isinstance(self._options.ending, Named):
            p = backwards[0]
            raise ConfigError(
                f"{p} would begin at {starts[p]} and end at {ends[p]}: check startingOffsets, endingOffsets"
            )
        return ranges_between(starts, ends)

    def partitions(self) -> list[TopicPartition]:
        topics = self._options.topics
        if topics.assigned:
            names = sorted({partition.topic for partition in topics.assigned})
            known = {p for name in names for p in self._partitions_of(name)}
            unknown = sorted(set(topics.assigned) - known)
            if unknown:
                raise ConfigError(f"assign: there is no partition {', '.join(map(str, unknown))}")
            return sorted(topics.assigned)
        names = self._matching(topics.pattern) if topics.pattern is not None else list(topics.names)
        return [partition for name in names for partition in self._partitions_of(name)]

    def _partitions_of(self, topic: str) -> Collection[TopicPartition]:
        try:
            return self._consumer.partitions_for(topic)
        except BrokerError as error:
            if error.code != _UNKNOWN_TOPIC:
                raise
        raise ConfigError(f"there is no topic {topic!r} on these brokers: make it first, or mend its name")

    def _matching(self, pattern: str) -> list[str]:
        with Admin(self._admin_properties()) as admin:
            known = admin.topics()
            # As Topics.has. Kafka's own topics are only read by name.
            return sorted(name for name in known if re.fullmatch(pattern, name) and not known[name].internal)

    def _admin_properties(self) -> Mapping[str, object]:
        from multilane.config.app.kafka_names import canonical
        from multilane.config.properties import Scope

        return canonical(dict(self._options.properties), frozenset({Scope.CLIENT}))

    # --- places ------------------------------------------------------------------------------------------------------

    def resolve(self, option: str, place: OffsetSpec, partitions: Collection[TopicPartition]) -> Offsets:
        match place:
            case Named():
                return self._named(place.word, partitions)
            case AtTime():
                return self._at_time(option, place, partitions)
            case Exact():
                return self._exact(option, place, partitions)

    def _named(self, word: str, partitions: Collection[TopicPartition]) -> Offsets:
        if word == EARLIEST:
            return dict(self._consumer.beginning_offsets(partitions))
        if word == LATEST:
            return dict(self._consumer.end_offsets(partitions))
        if word != GROUP:
            raise ValueError(word)
        committed = self._consumer.committed(partitions)
        missing = [p for p in partitions if committed.get(p) is None]
        found = {p: int(place.offset) for p, place in committed.items() if place is not None}
        ends = self._consumer.log_ends(list(found)) if found else {}
        known = {p: OffsetAndEpoch(at.offset, at.leader_epoch) for p, at in committed.items() if at is not None}
        self._go_back(found, {p: at for p, at in known.items() if at.leader_epoch >= 0}, ends)
        for partition, offset in found.items():
            if offset > ends[partition].offset:
                self._lost(f"the group is at {offset} of {partition}, but its log ends at {ends[partition].offset}")
                found[partition] = ends[partition].offset
        return found | self._named(EARLIEST, missing) if missing else found

    def _exact(self, option: str, place: Exact, partitions: Collection[TopicPartition]) -> Offsets:
        _check_named(option, place.places, partitions)
        found: Offsets = {p: offset for p, offset in place.places.items() if isinstance(offset, int)}
        for word in {offset for offset in place.places.values() if isinstance(offset, str)}:
            found |= self._named(word, [p for p, offset in place.places.items() if offset == word])
        ends = self._named(LATEST, partitions)
        for partition, offset in found.items():
            if offset > ends[partition]:
                self._lost(f"{option} wants {partition} at {offset}, and its log ends at {ends[partition]}")
                found[partition] = ends[partition]
        return found

    def _at_time(self, option: str, place: AtTime, partitions: Collection[TopicPartition]) -> Offsets:
        if isinstance(place.times, int):
            times = dict.fromkeys(partitions, place.times)
        else:
            _check_named(option, place.times, partitions)
            times = dict(place.times)
        found = self._consumer.offsets_for_times(times)
        missing = [p for p in partitions if found.get(p) is None]
        if missing and place.is_strict:
            told = ", ".join(f"{p} from {times[p]} on" for p in missing)
            raise ConfigError(
                f"no record of {told}: choose an earlier time, or set startingOffsetsByTimestampStrategy to latest"
            )
        offsets = {p: int(place.offset) for p, place in found.items() if place is not None}
        return offsets | self._named(LATEST, missing) if missing else offsets

    def _go_back(
        self,
        places: Offsets,
        known: Mapping[TopicPartition, OffsetAndEpoch],
        ends: Mapping[TopicPartition, OffsetAndEpoch],
    ) -> bool:
        """Where a log was cut below a place that was read to, it has other records now. Whether there is one."""
        cut = self._cut_logs.find(known, ends)
        for partition, common in cut.items():
            was = f"{partition} was read up to {places[partition]}, but its log has since been truncated at {common}"
            self._lost(f"{was} (an unclean leader election)")
            places[partition] = common
        return bool(cut)

    def _lost(self, what: str) -> None:
        """Returns if one may go on."""
        if self._options.fail_on_data_loss:
            raise DataLoss(f"{what}. Set failOnDataLoss to false to go on without what is missing")
        if what not in self._told:  # Spark asks a hundred times a second
            self._told.add(what)
            log.warning("%s: going on without what is missing, as failOnDataLoss is false", what)


class StreamPlanner(Planner):
    """The same over and over: what has come since."""

    def __init__(self, options: SourceOptions, clock: Clock | None = None) -> None:
        super().__init__(options)
        self._clock = clock or SystemClock()
        self._known: list[TopicPartition] = []
        self._look_at = 0.0
        self._target: Offsets | None = None  # the end, for a run that reads what is available now
        self._group: Consumer | None = None
        self._committed: Offsets = {}
        self._newest: Offsets = {}
        self._ends: dict[TopicPartition, OffsetAndEpoch] = {}
        self._begins: Offsets = {}  # of the batch that was planned last
        self._recalled: dict[TopicPartition, OffsetAndEpoch] = {}  # out of the last checkpoint
        self._last_batch = float("-inf")
        self._ids: dict[str, str] = {}  # of topics; empty where there is none

    def close(self) -> None:
        super().close()
        if self._group is not None:
            self._group.close(0)

    @property
    def newest(self) -> Offsets:
        """Where the logs ended when they were last looked at."""
        return dict(self._newest)

    def begin(self) -> Offsets:
        return self.resolve("startingOffsets", self._options.starting, self.partitions())

    def fix_target(self) -> None:
        self._target = self._named(LATEST, self.partitions())

    def latest(self, starts: Offsets, limit: int | None) -> Offsets:
        """Where the next batch ends. What lies before `starts` has been processed: the group may know."""
        starts = self._own(starts)
        self._ends = self._consumer.log_ends(self._partitions_lately())
        self._newest = {p: int(end.offset) for p, end in self._ends.items()}
        ends = dict(self._newest)
        if self._target is not None:
            ends = {p: min(end, self._target[p]) for p, end in ends.items() if p in self._target}
        known = {p: at for p, at in self._recalled.items() if starts.get(p) == at.offset}
        went_back = self._go_back(starts, known, self._ends)
        self._check(starts, ends)
        self._commit(starts)
        self._begins = begins = self._with_new(starts, ends)
        if went_back:  # Spark reads from where it thinks it is: it hears of this by a batch without records
            return begins
        ends = {p: max(end, begins[p]) for p, end in ends.items()}
        if self._waits_for_more(ranges_between(begins, ends)):
            return begins
        if limit is None:
            return ends
        return begins | {one.partition: one.end for one in admitted(ranges_between(begins, ends), limit)}

    def _waits_for_more(self, ranges: Collection[Range]) -> bool:
        """There is too little for a batch, and the last one was not long ago; notes when one is begun. A run that reads
        what is available now waits for nothing."""
        now, wanted = self._clock.monotonic(), self._options.min_offsets or 0
        is_due = self._target is not None or now - self._last_batch >= self._options.trigger_delay
        if not is_due and sum(map(len, ranges)) < wanted:
            return True
        if ranges:
            self._last_batch = now
        return False

    def _partitions_lately(self) -> list[TopicPartition]:
        """Spark asks a hundred times a second; that there are more partitions may be seen a little later."""
        now = self._clock.monotonic()
        if now >= self._look_at:
            self._known = self.partitions()
            self._look_at = now + _LOOK_FOR_PARTITIONS
        return self._known

    def ranges(self, starts: Offsets, ends: Offsets) -> list[Range]:
        ends = self._own(ends)
        return ranges_between(self._with_new(starts, ends), ends)

    # --- checkpoints -------------------------------------------------------------------------------------------------

    def ids_of(self, topics: Collection[str]) -> dict[str, str]:
        unknown = [topic for topic in topics if topic not in self._ids]
        if unknown:
            with Admin(self._admin_properties()) as admin:
                known = admin.topics()
            # One that is not there is not asked for again and again.
            self._ids |= {topic: str(known[topic].id or "") if topic in known else "" for topic in unknown}
        return {topic: self._ids[topic] for topic in topics if self._ids.get(topic)}

    def recall(self, tree: Tree) -> Offsets:
        """Places out of a checkpoint. A topic that was deleted and made again has the name of the one that was read and
        none of its records: places in that one are none."""
        told = ids_in(tree)
        now = self.ids_of(told)
        remade = {topic for topic, known in told.items() if now.get(topic, known) != known}
        for topic in sorted(remade):
            self._lost(f"{topic} was deleted and made again since it was read")
        found: Offsets = {p: offset for p, offset in from_json(tree).items() if p.topic not in remade}
        epochs = {p: LeaderEpoch(epoch) for p, epoch in epochs_in(tree).items() if p in found}
        self._recalled = {p: OffsetAndEpoch(Offset(found[p]), epoch) for p, epoch in epochs.items()}
        return found

    def epochs_of(self, offsets: Offsets) -> dict[TopicPartition, int]:
        """Leader epochs to keep with these places: as they were told, or those of now where something is to be read."""
        known = {p: self._epoch_at(p, offset) for p, offset in offsets.items()}
        return {p: epoch for p, epoch in known.items() if epoch is not None}

    def _epoch_at(self, partition: TopicPartition, offset: int) -> int | None:
        recalled = self._recalled.get(partition)
        if recalled is not None and recalled.offset == offset:  # the same place twice is no news for Spark
            return recalled.leader_epoch
        is_read = self._begins.get(partition) != offset and partition in self._ends
        return self._ends[partition].leader_epoch if is_read else None

    def _own(self, places: Offsets) -> Offsets:
        """Of places out of a checkpoint those that this query reads."""
        topics = self._options.topics
        others = sorted(p for p in places if not topics.has(p))
        if not others:
            return places
        told = f"the checkpoint is of a query that read {', '.join(map(str, others))}, and this one reads {topics}"
        if len(others) == len(places):
            raise ConfigError(f"{told}: give it a checkpointLocation of its own")
        self._lost(told)
        return {p: offset for p, offset in places.items() if p not in others}

    def _with_new(self, starts: Offsets, ends: Offsets) -> Offsets:
        """Partitions that came since are read from their beginning."""
        new = [p for p in ends if p not in starts]
        known = {p: start for p, start in starts.items() if p in ends}
        return known | self._named(EARLIEST, new) if new else known

    def _check(self, starts: Offsets, ends: Offsets) -> None:
        gone = sorted(p for p in starts if p not in self._newest)
        if gone:
            self._lost(f"{', '.join(map(str, gone))} was read and is not there any more")
        for partition, start in starts.items():
            end = ends.get(partition, start)
            if end < start:
                self._lost(f"{partition} was read up to {start}, and its log ends at {end}")
                starts[partition] = end

    def _commit(self, done: Offsets) -> None:
        news = {p: offset for p, offset in done.items() if self._committed.get(p) != offset}
        if self._options.commit_group is None or not news:
            return
        if self._group is None:
            self._group = Consumer({**self._options.properties, **_QUIET, "group.id": self._options.commit_group})
        try:
            self._group.commit({p: OffsetAndMetadata(Offset(at), self._epoch_before(p, at)) for p, at in news.items()})
        except MultilaneError as error:
            group = self._options.commit_group
            if not error.retriable:
                raise ConfigError(f"commitGroup {group}: {error}. Give the stream a group without members") from error
            log.warning("group %s does not know of the last batch yet: %s", group, error)
        else:
            self._committed |= news

    def _epoch_before(self, partition: TopicPartition, offset: int) -> LeaderEpoch:
        """So that whoever begins at the group notices a log that was cut: as it was told with the place, or that of
        the leader which has the log up to there."""
        recalled = self._recalled.get(partition)
        if recalled is not None and recalled.offset == offset:
            return recalled.leader_epoch
        return self._ends[partition].leader_epoch if partition in self._ends else NO_EPOCH


def _check_named(option: str, places: Mapping[TopicPartition, object], partitions: Collection[TopicPartition]) -> None:
    missing, unknown = sorted(set(partitions) - places.keys()), sorted(places.keys() - set(partitions))
    if missing or unknown:
        told = [f"{', '.join(map(str, missing))} missing"] if missing else []
        told += [f"{', '.join(map(str, unknown))} not read at all"] if unknown else []
        raise ConfigError(f"{option} has to name exactly the partitions that are read: {'; '.join(told)}")
