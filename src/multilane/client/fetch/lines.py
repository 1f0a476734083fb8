"""The lines over which one consumer fetches: a few connections to each broker.

Thread: none (pure); owned by a fetch manager on the network thread.

With two lines a broker prepares the next answer while we receive this one, and a partition that comes to be fetched
does not wait behind a fetch that waits for data. A free line takes every partition that may be fetched; when several
are free they share them. Where the buffer's room is short, brokers take turns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import count

from multilane.client.fetch.cursor import Cursor
from multilane.client.fetch.fetch_session import FetchSession, SessionKey
from multilane.client.net.request_state import Backoff, RequestState
from multilane.client.net.requests import Channel
from multilane.types import NodeId


@dataclass(slots=True, eq=False)
class Line:
    """One connection's worth of fetching: its session, and what the request under way asked for and may bring."""

    node: NodeId
    channel: Channel
    state: RequestState
    session: FetchSession = field(default_factory=FetchSession)
    reserved: int = 0
    asked: dict[SessionKey, tuple[Cursor, int, int]] = field(default_factory=dict)


class Lines:
    def __init__(self, owner: str, per_broker: int, backoff: Backoff) -> None:
        self._owner = owner
        self._per_broker = per_broker
        self._backoff = backoff
        self._lines: dict[NodeId, tuple[Line, ...]] = {}
        self._served: dict[NodeId, int] = {}
        self._turns = count(1)

    @property
    def reserved(self) -> int:
        """Bytes that the requests under way may bring."""
        return sum(line.reserved for lines in self._lines.values() for line in lines)

    def to(self, node: NodeId) -> tuple[Line, ...]:
        if node not in self._lines:
            self._lines[node] = tuple(
                Line(node, Channel(self._owner, number), RequestState(self._backoff))
                for number in range(self._per_broker)
            )
        return self._lines[node]

    def in_turn(self, nodes: Iterable[NodeId]) -> list[NodeId]:
        """Those first that were served longest ago."""
        return sorted(nodes, key=lambda node: self._served.get(node, 0))

    def served(self, node: NodeId) -> None:
        self._served[node] = self.next_turn()

    def next_turn(self) -> int:
        return next(self._turns)
