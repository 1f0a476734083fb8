"""Each reader's share of a request, by the room in its buffer.

Thread: none (pure); owned by a fetch manager on the network thread.

A reader's buffer bounds only what is fetched for that reader: a reader without room is left out of requests, and its
cursors wait here until the application has taken records. A connection with one reader requests no more than that
reader has room for. On a connection with several readers, the partitions of each are requested with sizes that together
fit its room, so one reader's lack of room does not make the others' answers smaller.

A reader that has less room than its partitions need takes turns: whenever it has room again, those that waited go
first, and among them those with records. What it already carries goes to the end of the queue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from multilane.client.fetch.cursor import Cursor, Phase
from multilane.client.fetch.reader import Reader

if TYPE_CHECKING:
    from multilane.client.fetch.fetch_connections import FetchConnection
    from multilane.client.fetch.wanted_partitions import WantedPartition, WantedPartitions

_SMALLEST_SIZE: Final = 1 << 16  # bytes per partition when room is short; a broker sends at least one batch
_TIGHT: Final = 4  # the room of a reader with less than this many small fetches is checked for every request


class Shares:
    def __init__(
        self,
        wanted: WantedPartitions,
        max_bytes: int,
        is_at_end: Callable[[Cursor], bool],
        look: Callable[[Reader, Cursor], None],
    ) -> None:
        self._wanted = wanted
        self._max_bytes = max_bytes
        self._is_at_end = is_at_end
        self._look = look
        self._waiting: dict[Reader, None] = {}
        self.tight: dict[Reader, None] = {}

    def has_room(self, reader: Reader) -> bool:
        credit = reader.credit()
        if credit < _TIGHT * reader.min_room:
            self.tight[reader] = None
        else:
            self.tight.pop(reader, None)
        return credit >= reader.min_room or self.make_room(reader)

    def may_join(self, reader: Reader, wanted: WantedPartition | None) -> bool:
        """Whether the reader can share this partition of another reader's request. Joining a request in flight takes
        room at once, and may not take it from partitions that are about to be requested."""
        if wanted is None or wanted.connection is None or not wanted.connection.state.in_flight:
            return True
        if reader.credit() - wanted.max_bytes >= reader.min_room:
            return True
        return all(w.connection is not None and w.connection.state.in_flight for w in reader.attached.values())

    def make_room(self, reader: Reader) -> bool:
        """Evicts the buffered records of paused partitions, so that they do not starve the others. They are fetched
        again later."""
        evicted = False
        for cursor in reader.cursors:
            if cursor.paused and cursor.phase is Phase.FETCHING and not cursor.in_flight:
                resume_at = reader.buffer.evict(cursor)
                if resume_at is not None:
                    cursor.rewound(*resume_at)
                    evicted = True
        return evicted

    def wait_for_room(self, reader: Reader, cursor: Cursor) -> None:
        reader.waiting_for_room[cursor] = None
        self._waiting[reader] = None

    def resume(self) -> None:
        """Called when a buffer may have room again: it wakes the thread when the application has taken records."""
        for reader in [r for r in self._waiting if r.credit() >= r.min_room]:
            del self._waiting[reader]
            waiting_for_room, reader.waiting_for_room = reader.waiting_for_room, {}
            carried = [c for c, w in reader.attached.items() if w.connection and not w.connection.state.in_flight]
            for cursor in carried:
                self._wanted.detach(cursor, reader)
            for cursor in sorted(waiting_for_room, key=self._is_at_end) + carried:
                self._look(reader, cursor)

    def forget(self, reader: Reader) -> None:
        self._waiting.pop(reader, None)
        self.tight.pop(reader, None)
        reader.waiting_for_room = {}

    def leave_out(self, connection: FetchConnection) -> None:
        """Removes readers without room from the next request; the other readers' partitions stay in it."""
        asked = connection.readers if len(connection.readers) == 1 else {**connection.changed, **self.tight}
        for reader in [r for r in asked if r in connection.readers]:
            if not self.has_room(reader):
                for cursor in tuple(connection.readers[reader]):
                    self._wanted.detach(cursor, reader)
                    self.wait_for_room(reader, cursor)

    def limit(self, connection: FetchConnection, peers: Iterable[FetchConnection]) -> int:
        """Bytes that the next request on this connection may return; `peers` are the connections that send now too."""
        was_shared, connection.is_shared = connection.is_shared, len(connection.readers) > 1
        peers = tuple(peers)
        if not connection.is_shared:
            (reader,) = connection.readers
            _resize(connection, reader, reader.partition_max_bytes)
            bound = len(connection.carried) * reader.partition_max_bytes
            limit = min(self._max_bytes, max(_allowance(reader, peers), reader.min_room), bound)
            reader.reserved[connection] = limit
            return limit
        for reader in connection.changed if was_shared else connection.readers:
            if reader in connection.readers:
                self._portion(connection, reader, _allowance(reader, peers))
        return min(self._max_bytes, sum(reader.reserved[connection] for reader in connection.readers))

    def _portion(self, connection: FetchConnection, reader: Reader, allowance: int) -> None:
        count = len(connection.readers[reader])
        size = reader.partition_max_bytes
        while size > _SMALLEST_SIZE and size * count > allowance:  # halving keeps changes of size rare
            size //= 2
        _resize(connection, reader, size)
        reader.reserved[connection] = min(self._max_bytes, count * size)


def _allowance(reader: Reader, peers: Iterable[FetchConnection]) -> int:
    return reader.credit() // max(1, sum(reader in peer.readers for peer in peers))


def _resize(connection: FetchConnection, reader: Reader, size: int) -> None:
    if connection.sizes.get(reader) != size:
        connection.sizes[reader] = size
        connection.added.update(dict.fromkeys(connection.readers[reader].values()))
