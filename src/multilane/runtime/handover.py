"""What an earlier processor of the same partitions hands over, and how the next one marks the records it takes in.

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
    """What an earlier processor of the same partitions hands over."""

    held: tuple[bytes | None, ...] = ()  # keys with records still in flight there: later records of these keys wait
    retried: Mapping[tuple[str, int], Record] = field(default_factory=dict)  # by topic and offset, with their headers


NO_HANDOVER: Final = Handover()


def notes_for(parking: Parking | None, handover: Handover) -> Callable[[list[Record]], None] | None:
    if parking is None:
        return None

    def note(records: list[Record]) -> None:
        for index, record in enumerate(records):
            if record.topic == parking.retry_topic:
                parking.seen(record.key, record.offset)
                retried = handover.retried.get((record.topic, record.offset))
                if retried is not None:
                    records[index] = record._replace(headers=retried.headers, timestamp=retried.timestamp)

    return note
