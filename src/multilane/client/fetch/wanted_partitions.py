"""What is wanted of a broker: a partition from an offset on, by one cursor or by many.

Thread: none (pure); owned by a fetch manager on the network thread.

Cursors of several consumers that stand at the same place (same broker, topic id, offset and leader epoch) are one wish:
it is asked for once, and whoever comes to want the same while it is under way joins it. A wish ends with the first
answer about its partition; its cursors then stand elsewhere and want something new.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from multilane.types import LeaderEpoch, NodeId, Offset, TopicPartition
from multilane.wire.compose import FetchItem

if TYPE_CHECKING:
    from multilane.client.fetch.cursor import Cursor
    from multilane.client.fetch.fetch_connections import FetchConnection
    from multilane.client.fetch.fetch_session import SessionKey
    from multilane.client.fetch.reader import Reader

WishKey = tuple[NodeId, TopicPartition, UUID | None, Offset, LeaderEpoch]


class WantedPartition:
    __slots__ = ("cursors", "key", "line", "max_bytes")

    def __init__(self, key: WishKey) -> None:
        self.key = key
        self.cursors: dict[Cursor, Reader] = {}
        self.line: FetchConnection | None = None
        self.max_bytes = 0

    @property
    def node(self) -> NodeId:
        return self.key[0]

    @property
    def partition(self) -> TopicPartition:
        return self.key[1]

    @property
    def offset(self) -> Offset:
        return self.key[3]

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Under which it is asked for; of a replica it is asked without one."""
        return self.key[4]

    @property
    def place(self) -> SessionKey:
        """A request may hold this once: brokers drop a second mention in silence."""
        partition = self.key[1]
        return (partition.topic, self.key[2], partition.partition)

    @property
    def served(self) -> int:
        return min(cursor.served for cursor in self.cursors)

    def item(self) -> FetchItem:
        _, partition, topic_id, offset, epoch = self.key
        return FetchItem(partition.topic, topic_id, partition.partition, offset, epoch, self.max_bytes)


class WantedPartitions:
    """All wishes of one fetch class, by what they want."""

    def __init__(self) -> None:
        self._wishes: dict[WishKey, WantedPartition] = {}

    def __iter__(self) -> Iterator[WantedPartition]:
        return iter(tuple(self._wishes.values()))

    def attach(self, cursor: Cursor, reader: Reader, key: WishKey) -> WantedPartition | None:
        """Let the cursor want this too; the wish if it is a new one, which nobody asks for yet."""
        wish = self._wishes.get(key)
        is_new = wish is None
        if wish is None:
            wish = self._wishes[key] = WantedPartition(key)
        wish.cursors[cursor] = reader
        reader.attached[cursor] = wish
        if wish.line is not None:
            cursor.in_flight = True
            wish.line.joined(cursor, reader, wish)
        return wish if is_new else None

    def detach(self, cursor: Cursor, reader: Reader) -> None:
        """The cursor wants it no longer; what nobody wants is asked for no more."""
        wish = reader.attached.pop(cursor)
        del wish.cursors[cursor]
        line = wish.line
        if line is not None:
            cursor.in_flight = False
            line.left(cursor, reader)
            if not wish.cursors and line.state.in_flight:
                line.review[wish] = None  # the answer may still come: until then the place is taken
        if not wish.cursors and (line is None or not line.state.in_flight):
            self.end(wish)

    def end(self, wish: WantedPartition) -> list[tuple[Cursor, Reader]]:
        """The wish is answered or given up; whose it was."""
        was = list(wish.cursors.items())
        if wish.line is not None:
            wish.line.take_off(wish)
        for cursor, reader in was:
            cursor.in_flight = False
            del reader.attached[cursor]
        wish.cursors.clear()
        if self._wishes.get(wish.key) is wish:
            del self._wishes[wish.key]
        return was
