"""One consumer as the shared fetching sees it: what it wants, where its records go, and whom to tell of trouble.

Thread: none (pure); owned by the network thread, one per consumer.

Owns nothing but the record of what is under way for this consumer. Its cursors and its buffer are the consumer's own:
no other reader can change them, fill them, or keep them waiting.
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
class FetchPolicy:
    """The class of a fetch: what travels once per request or decides how an answer is decoded. Readers with the same
    policy share requests, answers and blocks."""

    kind: FetchClass
    backoff: RequestBackoff
    replica_max_age: float
    lines: int  # fetches that may wait at one broker for data
    max_decompressed_bytes: int
    check_crcs: bool = True
    client_id: str | None = None
    pace: float = 0.0  # seconds from fetch to fetch of a line with nothing to catch up on


@dataclass(frozen=True, slots=True)
class Trouble:
    """Whom the fetching tells about a cursor; all are called on the network thread and must not block."""

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
        "least",
        "parked",
        "partition_max_bytes",
        "policy",
        "reserved",
        "tell",
        "trouble",
    )

    def __init__(
        self,
        policy: FetchPolicy,
        cursors: CursorTable,
        buffer: FetchBuffer,
        partition_max_bytes: int,
        trouble: Trouble,
        tell: Callable[[ApplicationEvent], None],
    ) -> None:
        self.policy = policy
        self.cursors = cursors
        self.buffer = buffer
        self.partition_max_bytes = partition_max_bytes
        self.trouble = trouble
        self.tell = tell  # from a decoder's thread
        self.is_open = True
        # Room below this is no room. Half of a small buffer is: else nothing would ever be fetched into it.
        self.least = max(1, min(SMALLEST_FETCH, partition_max_bytes, buffer.limit // 2))
        self.attached: dict[Cursor, WantedPartition] = {}
        self.parked: dict[Cursor, None] = {}  # what waits for room in the buffer
        self.reserved: dict[FetchConnection, int] = {}  # what a request may bring

    def credit(self) -> int:
        """Bytes that may still be asked for: the room that is left when all that is under way has come."""
        under_way = sum(n for line, n in self.reserved.items() if line.state.in_flight)
        return self.buffer.room() - under_way

    def is_current(self, cursor: Cursor) -> bool:
        return self.is_open and self.cursors.get(cursor.partition) is cursor
