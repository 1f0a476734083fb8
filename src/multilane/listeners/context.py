"""What travels with a record: from the interceptors to the function, to what that produces, and to error interceptors.

Thread: any; each record has its own.

A context is a dict that interceptors fill, usually from headers. While a function runs, `current_context()` gives the
one of its record, so that a producer called far below can carry it on.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any, Final

from multilane.wire.records.record import Record

GROUP: Final = "Z-GroupID"
TOPIC: Final = "Z-Topic"
PARTITION: Final = "Z-Partition"
TIMESTAMP: Final = "Z-Timestamp"
MEMBER: Final = "Z-MemberID"


class Context(dict[str, Any]):
    """Names and values; the four that every record has are `Z-GroupID`, `Z-Topic`, `Z-Partition`, `Z-Timestamp`. Where
    the member of the group runs the function there is `Z-MemberID` too."""


CURRENT: Final[ContextVar[Context | None]] = ContextVar("multilane.context", default=None)


def current_context() -> Context | None:
    """The context of the record in work; None outside of a listener, or where none was asked for."""
    return CURRENT.get()


def context_of(record: Record, group: str, member: str | None = None) -> Context:
    context = Context(
        {GROUP: group, TOPIC: record.topic, PARTITION: record.partition, TIMESTAMP: record.timestamp},
    )
    if member is not None:
        context[MEMBER] = member
    return context
