"""Who has room for what: each reader's part of a request.

Thread: none (pure); owned by a fetch manager on the network thread.

A reader's buffer bounds what is fetched for it and nothing else: one without room is left out of the requests, and its
cursors wait here until the application has taken something. A line with one reader asks for no more than that reader
has room for. On a line with several, each reader's partitions are asked for in such sizes that all of them together fit
its room, so that nobody's lack of room makes the others' answers smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from multilane.client.fetch.cursor import Cursor, Phase
from multilane.client.fetch.reader import Reader

if TYPE_CHECKING:
    from multilane.client.fetch.fetch_connections import FetchConnection
    from multilane.client.fetch.wanted_partitions import WantedPartitions

_SMALLEST_SIZE: Final = 1 << 16  # of a partition, where room is short; a broker sends one batch at least
_TIGHT: Final = 4  # a reader with less room than this many small fetches is asked about its room each time


class Shares:
    def __init__(self, wishes: WantedPartitions, max_bytes: int, look: Callable[[Reader, Cursor], None]) -> None:
        self._wishes = wishes
        self._max_bytes = max_bytes
        self._look = look
        self._starved: dict[Reader, None] = {}
        self.tight: dict[Reader, None] = {}

    def has_room(self, reader: Reader) -> bool:
        credit = reader.credit()
        if credit < _TIGHT * reader.least:
            self.tight[reader] = None
        else:
            self.tight.pop(reader, None)
        return credit >= reader.least or self.make_room(reader)

    def make_room(self, reader: Reader) -> bool:
        """Paused partitions must not starve the others: what is buffered of them is fetched again later."""
        evicted = False
        for cursor in reader.cursors:
            if cursor.paused and cursor.phase is Phase.FETCHING and not cursor.in_flight:
                given_up = reader.buffer.evict(cursor)
                if given_up is not None:
                    cursor.rewound(*given_up)
                    evicted = True
        return evicted

    def park(self, reader: Reader, cursor: Cursor) -> None:
        reader.parked[cursor] = None
        self._starved[reader] = None

    def unpark(self) -> None:
        """The buffer wakes the thread when the application has taken something."""
        for reader in [r for r in self._starved if r.credit() >= r.least]:
            del self._starved[reader]
            parked, reader.parked = reader.parked, {}
            for cursor in parked:
                self._look(reader, cursor)

    def forget(self, reader: Reader) -> None:
        self._starved.pop(reader, None)
        self.tight.pop(reader, None)
        reader.parked = {}

    def leave_out(self, line: FetchConnection) -> None:
        """Those without room are not asked for, be it that the others' answer comes without theirs."""
        asked = line.readers if len(line.readers) == 1 else {**line.changed, **self.tight}
        for reader in [r for r in asked if r in line.readers]:
            if not self.has_room(reader):
                for cursor in tuple(line.readers[reader]):
                    self._wishes.detach(cursor, reader)
                    self.park(reader, cursor)

    def limit(self, line: FetchConnection, peers: Iterable[FetchConnection]) -> int:
        """Bytes that the next request on this line may bring; `peers` are the lines that are about to leave too."""
        was_shared, line.is_shared = line.is_shared, len(line.readers) > 1
        peers = tuple(peers)
        if not line.is_shared:
            (reader,) = line.readers
            _resize(line, reader, reader.partition_max_bytes)
            bound = len(line.wishes) * reader.partition_max_bytes
            limit = min(self._max_bytes, max(_allowance(reader, peers), reader.least), bound)
            reader.reserved[line] = limit
            return limit
        for reader in line.changed if was_shared else line.readers:
            if reader in line.readers:
                self._portion(line, reader, _allowance(reader, peers))
        return min(self._max_bytes, sum(reader.reserved[line] for reader in line.readers))

    def _portion(self, line: FetchConnection, reader: Reader, allowance: int) -> None:
        count = len(line.readers[reader])
        size = reader.partition_max_bytes
        while size > _SMALLEST_SIZE and size * count > allowance:  # by halves: a size seldom changes
            size //= 2
        _resize(line, reader, size)
        reader.reserved[line] = min(self._max_bytes, count * size)


def _allowance(reader: Reader, peers: Iterable[FetchConnection]) -> int:
    return reader.credit() // max(1, sum(reader in peer.readers for peer in peers))


def _resize(line: FetchConnection, reader: Reader, size: int) -> None:
    if line.sizes.get(reader) != size:
        line.sizes[reader] = size
        line.added.update(dict.fromkeys(line.readers[reader].values()))
