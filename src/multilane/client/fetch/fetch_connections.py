"""The connections over which consumers fetch: a few to each broker.

Thread: none (pure); owned by a fetch manager on the network thread.

With two connections a broker prepares the next answer while we receive this one. A connection keeps requesting the
partitions that it carries. A request names only what has changed since the last, so idle partitions cost nothing. When
all connections wait for data, an extra connection takes partitions that become wanted in the meantime. Its fetches wait
only briefly, so one extra connection is always about to become free. It is closed as soon as its partitions are at the
end of their logs and a base connection is free to carry them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final
from uuid import UUID

from multilane.client.fetch.fetch_session import FetchSession, SessionKey
from multilane.client.net.request_state import RequestBackoff, RequestState
from multilane.client.net.requests import Channel
from multilane.types import NodeId

if TYPE_CHECKING:
    from multilane.client.fetch.cursor import Cursor
    from multilane.client.fetch.reader import Reader
    from multilane.client.fetch.wanted_partitions import WantedPartition

MAX_CONNECTIONS: Final = 4  # to one broker, including extra ones
ANSWERS_WITHIN: Final = 0.1  # seconds in which a connection with lagging partitions is expected to be answered
EXTRA_WAIT_MS: Final = 50  # the longest wait of an extra connection: a partition without any connection waits for one


@dataclass(slots=True, eq=False)
class FetchConnection:
    """One connection: its fetch session and the partitions that it carries. It carries partitions only while a request
    is in flight, and between an answer and the next request."""

    node: NodeId
    channel: Channel
    state: RequestState
    is_extra: bool = False
    sent_at: float = 0.0
    session: FetchSession = field(default_factory=FetchSession)
    carried: dict[SessionKey, WantedPartition] = field(default_factory=dict)
    readers: dict[Reader, dict[Cursor, WantedPartition]] = field(default_factory=dict)
    review: dict[WantedPartition, None] = field(default_factory=dict)  # to be released when the answer arrives
    added: dict[WantedPartition, None] = field(default_factory=dict)  # since the last request
    changed: dict[Reader, None] = field(default_factory=dict)  # readers with more or fewer partitions since then
    sizes: dict[Reader, int] = field(default_factory=dict)  # bytes per partition
    lagging: set[SessionKey] = field(default_factory=set)  # known to be behind the end of the log
    maybe_behind: set[SessionKey] = field(default_factory=set)  # not known to be at the end of the log
    is_shared: bool = False
    without_topic_id: int = 0  # carried partitions whose topic id is unknown
    _index: dict[tuple[UUID | str, int], WantedPartition] = field(default_factory=dict)

    @property
    def is_caught_up(self) -> bool:
        return not self.maybe_behind

    def paced_until(self, pace: float) -> float:
        """A fetch costs the same for one record as for hundreds. So a connection whose partitions are at the end of
        their logs leaves `pace` seconds between two fetches; after a longer fetch it sends the next at once."""
        return self.sent_at + pace if self.is_caught_up and not self.is_extra else 0.0

    def answers_soon(self, now: float) -> bool:
        """Whether its answer is expected shortly."""
        return self.state.in_flight and bool(self.lagging) and now < self.sent_at + ANSWERS_WITHIN

    def can_carry(self, wanted: WantedPartition) -> bool:
        """A recreated topic has the same name as the old one: a connection carries only one of them at a time."""
        return (wanted.session_key[0], wanted.session_key[2]) not in self._index

    def can_carry_next(self, wanted: WantedPartition) -> bool:
        occupant = self._index.get((wanted.session_key[0], wanted.session_key[2]))
        return occupant is None or not occupant.cursors

    def find(self, topic: UUID | str | None, partition: int) -> WantedPartition | None:
        return None if topic is None else self._index.get((topic, partition))

    def carry(self, wanted: WantedPartition, lag: int | None) -> None:
        """`lag`: how many offsets the partition is known to be behind; None if unknown."""
        session_key = wanted.session_key
        self.carried[session_key] = self._index[session_key[0], session_key[2]] = wanted
        if session_key[1] is not None:
            self._index[session_key[1], session_key[2]] = wanted
        else:
            self.without_topic_id += 1
        if lag is None or lag > 0:
            self.maybe_behind.add(session_key)
        if lag:
            self.lagging.add(session_key)
        wanted.connection = self
        self.added[wanted] = None
        for cursor, reader in wanted.cursors.items():
            self.readers.setdefault(reader, {})[cursor] = wanted
            self.changed[reader] = None

    def add_cursor(self, cursor: Cursor, reader: Reader, wanted: WantedPartition) -> None:
        self.readers.setdefault(reader, {})[cursor] = wanted
        self.changed[reader] = None
        reader.reserved[self] = reader.reserved.get(self, 0) + wanted.max_bytes

    def remove_cursor(self, cursor: Cursor, reader: Reader) -> None:
        cursors = self.readers.get(reader, {})
        cursors.pop(cursor, None)
        self.changed[reader] = None
        if not cursors:
            self.readers.pop(reader, None)
            self.sizes.pop(reader, None)
            self.changed.pop(reader, None)
            reader.reserved.pop(self, None)

    def take_off(self, wanted: WantedPartition) -> None:
        session_key = wanted.session_key
        if self.carried.get(session_key) is not wanted:
            return
        del self.carried[session_key], self._index[session_key[0], session_key[2]]
        if session_key[1] is not None:
            del self._index[session_key[1], session_key[2]]
        else:
            self.without_topic_id -= 1
        self.session.drop(session_key)
        self.review.pop(wanted, None)
        self.added.pop(wanted, None)
        self.lagging.discard(session_key)
        self.maybe_behind.discard(session_key)
        wanted.connection = None
        for cursor, reader in wanted.cursors.items():
            self.remove_cursor(cursor, reader)


@dataclass(slots=True, eq=False)
class BrokerConnections:
    """The connections to one broker."""

    base: tuple[FetchConnection, ...]
    extras: list[FetchConnection] = field(default_factory=list)
    served: int = 0

    def __iter__(self) -> Iterator[FetchConnection]:
        yield from self.base
        yield from self.extras

    def free(self, now: float) -> list[FetchConnection]:
        return [connection for connection in self.base if connection.state.may_send(now)]


class FetchConnections:
    def __init__(self, owner: str, per_broker: int, backoff: RequestBackoff) -> None:
        self._owner = owner
        self._per_broker = per_broker
        self._backoff = backoff
        self._brokers: dict[NodeId, BrokerConnections] = {}
        self._turns = count(1)
        self._extras = count(1)

    def to(self, node: NodeId) -> BrokerConnections:
        if node not in self._brokers:
            self._brokers[node] = BrokerConnections(
                tuple(
                    FetchConnection(node, Channel(self._owner, number), RequestState(self._backoff))
                    for number in range(self._per_broker)
                )
            )
        return self._brokers[node]

    def open_extra(self, node: NodeId) -> FetchConnection | None:
        """One more connection to this broker, under an owner of its own so that it can be closed alone. None when the
        limit is reached."""
        broker = self.to(node)
        if len(broker.base) + len(broker.extras) >= max(MAX_CONNECTIONS, len(broker.base) + 1):
            return None
        channel = Channel(f"{self._owner}-extra-{next(self._extras)}")
        connection = FetchConnection(node, channel, RequestState(self._backoff), is_extra=True)
        broker.extras.append(connection)
        return connection

    def in_turn(self) -> list[tuple[NodeId, BrokerConnections]]:
        """Least recently served first."""
        return sorted(self._brokers.items(), key=lambda entry: entry[1].served)

    def next_turn(self) -> int:
        return next(self._turns)
