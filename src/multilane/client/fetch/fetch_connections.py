"""The lines over which consumers fetch: a few connections to each broker.

Thread: none (pure); owned by a fetch manager on the network thread.

With two lines a broker prepares the next answer while we receive this one. A line keeps asking for what it carries: a
request names only what has changed since the last, so that partitions without news cost nothing. Where all lines wait
for data, an extra line takes what comes to be wanted meanwhile. Its fetches wait but shortly, so that there is always
one about to come free; it is given up as soon as its partitions are at the end of their logs and a line of the base
comes free to carry them.
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

MOST_LINES: Final = 4  # to one broker, with the extra ones
PATIENCE: Final = 0.1  # a line whose partitions lag is believed to be answered within this
EXTRA_WAIT_MS: Final = 50  # an extra line waits no longer for data: whoever finds no line at all waits for one of these


@dataclass(slots=True, eq=False)
class FetchConnection:
    """One connection's worth of fetching: its session and what it carries. It carries nothing but while a request is
    under way, and between an answer and the next request."""

    node: NodeId
    channel: Channel
    state: RequestState
    is_extra: bool = False
    sent_at: float = 0.0
    session: FetchSession = field(default_factory=FetchSession)
    wishes: dict[SessionKey, WantedPartition] = field(default_factory=dict)
    readers: dict[Reader, dict[Cursor, WantedPartition]] = field(default_factory=dict)
    review: dict[WantedPartition, None] = field(default_factory=dict)  # to be thought over when the answer is here
    added: dict[WantedPartition, None] = field(default_factory=dict)  # since the last request
    changed: dict[Reader, None] = field(default_factory=dict)  # who carries more or less since then
    sizes: dict[Reader, int] = field(default_factory=dict)  # bytes per partition
    lagging: set[SessionKey] = field(default_factory=set)  # known to have data
    unsettled: set[SessionKey] = field(default_factory=set)  # not known to have none
    is_shared: bool = False
    nameless: int = 0  # wishes whose topic has no id
    _index: dict[tuple[UUID | str, int], WantedPartition] = field(default_factory=dict)

    @property
    def is_settled(self) -> bool:
        return not self.unsettled

    def rests_until(self, pace: float) -> float:
        """A fetch costs the same whether it brings one record or hundreds. A line whose partitions are at the end of
        their logs leaves so much time between two: one that waited for longer than that goes on at once."""
        return self.sent_at + pace if self.is_settled and not self.is_extra else 0.0

    def is_prompt(self, now: float) -> bool:
        """Whether its answer is about to come, as far as one can know."""
        return self.state.in_flight and bool(self.lagging) and now < self.sent_at + PATIENCE

    def has_place(self, wish: WantedPartition) -> bool:
        """A topic that was made anew shares its name with the old one: only one of them at a time."""
        return (wish.place[0], wish.place[2]) not in self._index

    def will_have_place(self, wish: WantedPartition) -> bool:
        there = self._index.get((wish.place[0], wish.place[2]))
        return there is None or not there.cursors

    def find(self, topic: UUID | str | None, partition: int) -> WantedPartition | None:
        return None if topic is None else self._index.get((topic, partition))

    def carry(self, wish: WantedPartition, lag: int | None) -> None:
        """`lag`: how many offsets it is known to be behind; None: nobody knows."""
        place = wish.place
        self.wishes[place] = self._index[place[0], place[2]] = wish
        if place[1] is not None:
            self._index[place[1], place[2]] = wish
        else:
            self.nameless += 1
        if lag is None or lag > 0:
            self.unsettled.add(place)
        if lag:
            self.lagging.add(place)
        wish.line = self
        self.added[wish] = None
        for cursor, reader in wish.cursors.items():
            self.readers.setdefault(reader, {})[cursor] = wish
            self.changed[reader] = None

    def joined(self, cursor: Cursor, reader: Reader, wish: WantedPartition) -> None:
        self.readers.setdefault(reader, {})[cursor] = wish
        self.changed[reader] = None
        reader.reserved[self] = reader.reserved.get(self, 0) + wish.max_bytes

    def left(self, cursor: Cursor, reader: Reader) -> None:
        carried = self.readers.get(reader, {})
        carried.pop(cursor, None)
        self.changed[reader] = None
        if not carried:
            self.readers.pop(reader, None)
            self.sizes.pop(reader, None)
            self.changed.pop(reader, None)
            reader.reserved.pop(self, None)

    def take_off(self, wish: WantedPartition) -> None:
        place = wish.place
        if self.wishes.get(place) is not wish:
            return
        del self.wishes[place], self._index[place[0], place[2]]
        if place[1] is not None:
            del self._index[place[1], place[2]]
        else:
            self.nameless -= 1
        self.session.drop(place)
        self.review.pop(wish, None)
        self.added.pop(wish, None)
        self.lagging.discard(place)
        self.unsettled.discard(place)
        wish.line = None
        for cursor, reader in wish.cursors.items():
            self.left(cursor, reader)


@dataclass(slots=True, eq=False)
class BrokerConnections:
    """The lines to one broker."""

    base: tuple[FetchConnection, ...]
    extras: list[FetchConnection] = field(default_factory=list)
    served: int = 0

    def __iter__(self) -> Iterator[FetchConnection]:
        yield from self.base
        yield from self.extras

    def free(self, now: float) -> list[FetchConnection]:
        return [line for line in self.base if line.state.may_send(now)]


class FetchConnections:
    def __init__(self, owner: str, per_broker: int, backoff: RequestBackoff) -> None:
        self._owner = owner
        self._per_broker = per_broker
        self._backoff = backoff
        self._bundles: dict[NodeId, BrokerConnections] = {}
        self._turns = count(1)
        self._extras = count(1)

    def to(self, node: NodeId) -> BrokerConnections:
        if node not in self._bundles:
            self._bundles[node] = BrokerConnections(
                tuple(
                    FetchConnection(node, Channel(self._owner, number), RequestState(self._backoff))
                    for number in range(self._per_broker)
                )
            )
        return self._bundles[node]

    def open_extra(self, node: NodeId) -> FetchConnection | None:
        """One more line to this broker, with an owner of its own to be closed by; None when there are enough."""
        bundle = self.to(node)
        if len(bundle.base) + len(bundle.extras) >= max(MOST_LINES, len(bundle.base) + 1):
            return None
        channel = Channel(f"{self._owner}-extra-{next(self._extras)}")
        line = FetchConnection(node, channel, RequestState(self._backoff), is_extra=True)
        bundle.extras.append(line)
        return line

    def in_turn(self) -> list[tuple[NodeId, BrokerConnections]]:
        """Those first that were served longest ago."""
        return sorted(self._bundles.items(), key=lambda entry: entry[1].served)

    def next_turn(self) -> int:
        return next(self._turns)
