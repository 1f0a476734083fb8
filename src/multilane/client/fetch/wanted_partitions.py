"""Partitions that consumers want to fetch: each from one offset on, for one cursor or for many.

Thread: none (pure); owned by a fetch manager on the network thread.

Cursors of several consumers at the same position (same broker, topic id, offset and leader epoch) share one wanted
partition. It is requested once; a cursor that reaches the position while the request is in flight joins it. A wanted
partition ends with the first answer about its partition: its cursors have advanced by then and want another offset.
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

WantedKey = tuple[NodeId, TopicPartition, UUID | None, Offset, LeaderEpoch]


class WantedPartition:
    __slots__ = ("connection", "cursors", "key", "max_bytes")

    def __init__(self, key: WantedKey) -> None:
        self.key = key
        self.cursors: dict[Cursor, Reader] = {}
        self.connection: FetchConnection | None = None
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
        """The epoch that the request names. A fetch from a replica names none."""
        return self.key[4]

    @property
    def session_key(self) -> SessionKey:
        """At most once per request: brokers silently drop a duplicate."""
        partition = self.key[1]
        return (partition.topic, self.key[2], partition.partition)

    @property
    def served(self) -> int:
        return min(cursor.served for cursor in self.cursors)

    def item(self) -> FetchItem:
        _, partition, topic_id, offset, epoch = self.key
        return FetchItem(partition.topic, topic_id, partition.partition, offset, epoch, self.max_bytes)


class WantedPartitions:
    """All wanted partitions of one fetch class."""

    def __init__(self) -> None:
        self._wanted: dict[WantedKey, WantedPartition] = {}

    def __iter__(self) -> Iterator[WantedPartition]:
        return iter(tuple(self._wanted.values()))

    def find(self, key: WantedKey) -> WantedPartition | None:
        return self._wanted.get(key)

    def attach(self, cursor: Cursor, reader: Reader, key: WantedKey) -> WantedPartition | None:
        """Adds the cursor. Returns the wanted partition if it is new: no connection carries it yet."""
        wanted = self._wanted.get(key)
        is_new = wanted is None
        if wanted is None:
            wanted = self._wanted[key] = WantedPartition(key)
        wanted.cursors[cursor] = reader
        reader.attached[cursor] = wanted
        if wanted.connection is not None:
            cursor.in_flight = True
            wanted.connection.add_cursor(cursor, reader, wanted)
        return wanted if is_new else None

    def detach(self, cursor: Cursor, reader: Reader) -> None:
        """Removes the cursor. A partition that no cursor wants is not requested again."""
        wanted = reader.attached.pop(cursor)
        del wanted.cursors[cursor]
        connection = wanted.connection
        if connection is not None:
            cursor.in_flight = False
            connection.remove_cursor(cursor, reader)
            if not wanted.cursors and connection.state.in_flight:
                connection.review[wanted] = None  # the answer may still come; the slot is taken until then
        if not wanted.cursors and (connection is None or not connection.state.in_flight):
            self.end(wanted)

    def end(self, wanted: WantedPartition) -> list[tuple[Cursor, Reader]]:
        """Ends a wanted partition that is answered or abandoned. Returns its cursors and readers."""
        owners = list(wanted.cursors.items())
        if wanted.connection is not None:
            wanted.connection.take_off(wanted)
        for cursor, reader in owners:
            cursor.in_flight = False
            del reader.attached[cursor]
        wanted.cursors.clear()
        if self._wanted.get(wanted.key) is wanted:
            del self._wanted[wanted.key]
        return owners
