"""The context of a record: it goes from the interceptors to the function, its producers and the error interceptors.

Thread: any; each record has its own.

A context is a dict that interceptors fill, usually from headers. While a function runs, `current_context()` returns the
context of its record, so that a producer called deep inside the function can pass it on.
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
    """Names and values. Every record has `Z-GroupID`, `Z-Topic`, `Z-Partition` and `Z-Timestamp`. `Z-MemberID` is there
    too if a group member runs the function, or leases the partition to the process that does."""


CURRENT: Final[ContextVar[Context | None]] = ContextVar("multilane.context", default=None)


def current_context() -> Context | None:
    """The context of the record in flight; None outside a listener, or if nothing needs a context."""
    return CURRENT.get()


def context_of(record: Record, group: str, member: str | None = None) -> Context:
    context = Context(
        {GROUP: group, TOPIC: record.topic, PARTITION: record.partition, TIMESTAMP: record.timestamp},
    )
    if member is not None:
        context[MEMBER] = member
    return context
