"""One consumer as the shared fetching sees it: its cursors, its buffer, and its error handlers.

Thread: none (pure); owned by the network thread, one per consumer.

Owns only the record of what is in flight for this consumer. The cursors and the buffer belong to the consumer: no other
reader can change them, fill them, or keep them waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from multilane.client.events import ApplicationEvent
from multilane.client.net.request_state import RequestBackoff
from multilane.errors import MultilaneError, RecordBatchError
from multilane.wire.compose import FetchClass

if TYPE_CHECKING:
    from multilane.client.fetch.buffer import FetchBuffer
    from multilane.client.fetch.cursor import Cursor, CursorTable
    from multilane.client.fetch.fetch_connections import FetchConnection
    from multilane.client.fetch.wanted_partitions import WantedPartition
    from multilane.wire.fetch import FetchedPartition

SMALLEST_FETCH: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchSettings:
    """The class of a fetch: settings that a request holds once, or that decide how an answer is decoded. Readers with
    the same settings share requests, answers and blocks."""

    kind: FetchClass
    backoff: RequestBackoff
    replica_max_age: float
    connections: int  # base connections per broker: fetches that may wait there for data
    max_decompressed_bytes: int
    check_crcs: bool = True
    client_id: str | None = None
    pace: float = 0.0  # seconds between two fetches on a connection that has caught up


@dataclass(frozen=True, slots=True)
class ErrorHandlers:
    """Callbacks about a failing cursor; all are called on the network thread and must not block."""

    out_of_range: Callable[[Cursor, FetchedPartition], None]
    diverged: Callable[[Cursor, int, int], None]
    corrupt: Callable[[Cursor, RecordBatchError], None]
    stopped: Callable[[Cursor, MultilaneError], None]
    refused: Callable[[MultilaneError], None]


class Reader:
    __slots__ = (
        "attached",
        "buffer",
        "cursors",
        "is_open",
        "min_room",
        "on_error",
        "partition_max_bytes",
        "reserved",
        "send_event",
        "settings",
        "waiting_for_room",
    )

    def __init__(
        self,
        settings: FetchSettings,
        cursors: CursorTable,
        buffer: FetchBuffer,
        partition_max_bytes: int,
        on_error: ErrorHandlers,
        send_event: Callable[[ApplicationEvent], None],
    ) -> None:
        self.settings = settings
        self.cursors = cursors
        self.buffer = buffer
        self.partition_max_bytes = partition_max_bytes
        self.on_error = on_error
        self.send_event = send_event  # called on a decoder thread
        self.is_open = True
        # Less room than this counts as none. Half of a small buffer is enough: else nothing would be fetched into it.
        self.min_room = max(1, min(SMALLEST_FETCH, partition_max_bytes, buffer.limit // 2))
        self.attached: dict[Cursor, WantedPartition] = {}
        self.waiting_for_room: dict[Cursor, None] = {}  # cursors without room in the buffer
        self.reserved: dict[FetchConnection, int] = {}  # bytes that a request may return

    def credit(self) -> int:
        """Bytes that may still be requested: the room left after all answers in flight have arrived."""
        in_flight = sum(n for connection, n in self.reserved.items() if connection.state.in_flight)
        return self.buffer.room() - in_flight

    def is_current(self, cursor: Cursor) -> bool:
        return self.is_open and self.cursors.get(cursor.partition) is cursor
