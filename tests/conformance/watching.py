"""Groups seen from outside: what they have committed, and which copies lie in their retry and error topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from conformance.cases import Case, Order
from multilane import Admin, Consumer, TopicPartition
from multilane.clock import SystemClock
from multilane.commit import completion_map
from multilane.errors import MultilaneError
from multilane.testing.events import Committed, Copied, Event, RecordPlace

_POLL = 0.05
_PATIENCE = 20.0


class Watcher:
    """Reads commits first and copies afterwards: a copy that a commit rests on was there before the commit."""

    def __init__(self, bootstrap: str, cases: Sequence[Case]) -> None:
        self._cases = cases
        self._clock = SystemClock()
        self._admin = Admin({"bootstrap.servers": bootstrap})
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"})
        self._owner = {topic: case for case in cases for topic in case.topics if topic != case.name}
        self._copies = [
            TopicPartition(topic, number)
            for case in cases
            for topic, partitions in case.topics.items()
            for number in range(partitions)
            if topic != case.name
        ]
        self._consumer.assign(self._copies)
        self._read: dict[TopicPartition, int] = dict.fromkeys(self._copies, 0)
        self._known: dict[tuple[str, TopicPartition], tuple[int, str]] = {}

    def close(self) -> None:
        self._consumer.close()
        self._admin.close()

    def look(self) -> dict[str, list[Event]]:
        """What is new, by case: copies, then commits."""
        told: dict[str, list[Event]] = defaultdict(list)
        commits = {case.name: self._commits(case) for case in self._cases}
        self._read_copies(told)
        at = self._clock.monotonic()
        for name, some in commits.items():
            told[name] += [
                Committed(at, p.topic, p.partition, offset, completion_map.decode(metadata, offset))
                for p, (offset, metadata) in some.items()
            ]
        return told

    def committed(self, case: Case) -> dict[TopicPartition, int]:
        """As far as was seen."""
        return {p: offset for (name, p), (offset, _) in self._known.items() if name == case.name}

    def ends(self, case: Case) -> dict[TopicPartition, int]:
        """Where the logs that the group reads end."""
        read = [t for t in (case.name, case.retry) if t is not None]
        partitions = [TopicPartition(t, n) for t in read for n in range(case.partitions)]
        return {p: int(end) for p, end in self._consumer.end_offsets(partitions).items()}

    def _commits(self, case: Case) -> dict[TopicPartition, tuple[int, str]]:
        """Those that have changed."""
        try:
            found = self._admin.group_offsets(case.group)
        except MultilaneError:  # the group is not there yet, or its broker is away
            return {}
        news = {}
        for partition, committed in found.items():
            told = (int(committed.offset), committed.metadata)
            if self._known.get((case.name, partition)) != told:
                self._known[case.name, partition] = news[partition] = told
        return news

    def _read_copies(self, told: dict[str, list[Event]]) -> None:
        ends = self._consumer.end_offsets(self._copies)
        deadline = self._clock.monotonic() + _PATIENCE
        while any(self._read[p] < end for p, end in ends.items()):
            assert self._clock.monotonic() < deadline, "the copies cannot be read"
            for block in self._consumer.poll(_POLL):
                case = self._owner[block.topic]
                at = self._clock.monotonic()
                for record in block.records():
                    place = RecordPlace(record.topic, record.partition, record.offset)
                    key = None if record.key is None else record.key.decode()
                    number = str(Order.of(record.value).number)
                    told[case.name].append(Copied(at, number, key, place, record.topic == case.error))
                self._read[TopicPartition(block.topic, block.partition)] = int(block.next_offset)
