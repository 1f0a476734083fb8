"""Reads the errors in the newest records of retry and error topics.

Thread: application.

Reads a few records of each partition that has grown since the last call. Joins no group. Without permission to read, or
if brokers do not answer in time, there are no error texts, but the growth is still known.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from multilane.client.consumer import Consumer
from multilane.clock import Clock, SystemClock
from multilane.errors import MultilaneError
from multilane.logs import logger
from multilane.outcome.error_patterns import pattern_of
from multilane.outcome.failure_headers import error_in
from multilane.types import TopicPartition

log = logger(__name__)

_NEWEST: Final = 10  # records of a partition
_MOST_PARTITIONS: Final = 16  # per call: those that grew most
_SECONDS: Final = 2.0
_READING: Final = {
    "enable.auto.commit": False,
    "auto.offset.reset": "latest",
    "max.partition.fetch.bytes": 262_144,
    "fetch.max.bytes": 4_194_304,
}


class NewestErrors:
    """The newest errors of one cluster's topics."""

    def __init__(self, properties: Mapping[str, object], clock: Clock | None = None) -> None:
        self._properties = properties
        self._clock = clock or SystemClock()
        self._consumer: Consumer | None = None
        self._ends: dict[TopicPartition, int] = {}

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close(0)

    def look(self, bounds: Mapping[TopicPartition, tuple[int, int]]) -> dict[str, tuple[str, ...]]:
        """The patterns of error texts by topic, of records that arrived since the last call; none at the first call."""
        grown = {
            partition: (max(begin, self._ends[partition], end - _NEWEST), end)
            for partition, (begin, end) in bounds.items()
            if end > self._ends.get(partition, end)
        }
        self._ends = {partition: end for partition, (_, end) in bounds.items()}
        most = sorted(grown, key=lambda p: grown[p][0] - grown[p][1])[:_MOST_PARTITIONS]
        if not most:
            return {}
        try:
            return self._read({partition: grown[partition] for partition in most})
        except MultilaneError as error:
            log.debug("cannot read the newest records of retry and error topics: %s", error)
            return {}

    def _read(self, wanted: Mapping[TopicPartition, tuple[int, int]]) -> dict[str, tuple[str, ...]]:
        if self._consumer is None:
            self._consumer = Consumer({**self._properties, **_READING})
        consumer, until = self._consumer, self._clock.monotonic() + _SECONDS
        consumer.assign(wanted)
        for partition, (start, _) in wanted.items():
            consumer.seek(partition, start)
        found: dict[str, tuple[str, ...]] = {}
        while self._clock.monotonic() < until and any(consumer.position(p) < end for p, (_, end) in wanted.items()):
            for record in consumer.poll(0.2).records():
                if (text := error_in(record.headers)) != "":  # a record that only follows its key has no error
                    found[record.topic] = (*found.get(record.topic, ()), pattern_of(text))
        consumer.assign(())
        return found
