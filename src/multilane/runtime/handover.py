"""What an earlier team of the same partitions has left, and what lanes note of records that they take in after it.

Thread: loop (values).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from multilane.outcome.parking import Parking
from multilane.wire.records.record import Record


@dataclass(frozen=True, slots=True)
class Handover:
    """What an earlier team of the same partitions has left."""

    held: tuple[bytes | None, ...] = ()  # keys of records that are in work there still: what comes behind them waits
    tried: Mapping[tuple[str, int], Record] = field(default_factory=dict)  # by topic and offset: with these headers


NO_HANDOVER: Final = Handover()


def notes_for(parking: Parking | None, remains: Handover) -> Callable[[list[Record]], None] | None:
    if parking is None:
        return None

    def note(records: list[Record]) -> None:
        for at, record in enumerate(records):
            if record.topic == parking.retry_topic:
                parking.seen(record.key, record.offset)
                tried = remains.tried.get((record.topic, record.offset))
                if tried is not None:
                    records[at] = record._replace(headers=tried.headers, timestamp=tried.timestamp)

    return note
