"""Assigns wanted partitions to connections.

Thread: none (pure); owned by a fetch manager on the network thread.

Wanted partitions share the free base connections. When none is free, a wanted partition waits for a connection whose
answer is expected shortly (its partitions are known to lag), but never for one that itself waits for data: it is sent
at once on an extra connection, of which there are a few per broker. The partitions of an extra connection are assigned
again after each answer. When they are at the end of their logs and a base connection becomes free, that connection
takes them over and the extra one is closed in mid-wait. Nothing is lost, because nothing of it was answered; nothing is
late, because the base connection's request leaves at the same moment. Every fetch on a base connection ends within
the longest wait, so once all partitions are at the end only base connections remain; under load a base connection
becomes free all the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from multilane.client.fetch.fetch_connections import (
    ANSWERS_WITHIN,
    BrokerConnections,
    FetchConnection,
    FetchConnections,
)
from multilane.client.net.requests import NEVER

if TYPE_CHECKING:
    from multilane.client.fetch.reader import Reader
    from multilane.client.fetch.wanted_partitions import WantedPartition


class Placing:
    def __init__(
        self,
        connections: FetchConnections,
        lag: Callable[[WantedPartition], int | None],
        tight: dict[Reader, None],
        release: Callable[[WantedPartition], None],
    ) -> None:
        self._connections = connections
        self._lag = lag
        self._tight = tight
        self._release = release

    def assign(self, broker: BrokerConnections, unplaced: list[WantedPartition], now: float) -> list[WantedPartition]:
        """Assigns each to a connection, least recently requested first. Returns those that have to wait."""
        free = broker.free(now)
        left: list[WantedPartition] = []
        for wanted in sorted(unplaced, key=lambda w: w.served):
            connection = self._home(free, wanted) or self._extra(broker, wanted, now)
            if connection is None:
                left.append(wanted)
            else:
                connection.carry(wanted, self._lag(wanted))
        return left

    def fold(self, broker: BrokerConnections, now: float) -> tuple[list[FetchConnection], list[WantedPartition]]:
        """Extra connections that are no longer needed, and the partitions that free connections take over from them."""
        free = broker.free(now)
        spare: list[FetchConnection] = []
        moved: list[WantedPartition] = []
        if not free:
            return spare, moved
        for extra in broker.extras:
            if not (extra.state.in_flight and extra.is_caught_up and _fits(extra.carried.values(), free, moved)):
                continue
            spare.append(extra)
            for wanted in tuple(extra.carried.values()):
                if wanted in extra.review:
                    self._release(wanted)
                else:
                    extra.take_off(wanted)
                    moved.append(wanted)
        return spare, moved

    def wait(self, broker: BrokerConnections, now: float) -> float:
        """Seconds until a connection may become available to partitions without one by time alone."""
        waits = [connection.state.wait(now) for connection in broker]
        waits += [
            max(0.0, connection.sent_at + ANSWERS_WITHIN - now)
            for connection in broker.base
            if connection.answers_soon(now)
        ]
        return min(waits, default=NEVER)

    def _home(self, free: list[FetchConnection], wanted: WantedPartition) -> FetchConnection | None:
        """The connection that carries least. A reader that is short of room keeps all its partitions on one connection,
        so that none is left out."""
        connections = [connection for connection in free if connection.can_carry(wanted)]
        if not connections:
            return None
        tight = [reader for reader in wanted.cursors.values() if reader in self._tight]
        if tight:
            together = [
                connection for connection in connections if any(reader in connection.readers for reader in tight)
            ]
            return together[0] if together else connections[0]
        return min(connections, key=lambda connection: len(connection.carried))

    def _extra(self, broker: BrokerConnections, wanted: WantedPartition, now: float) -> FetchConnection | None:
        if any(not connection.state.in_flight and not connection.state.may_send(now) for connection in broker):
            return None  # the broker is failing: more connections would not help
        if any(connection.answers_soon(now) and connection.can_carry_next(wanted) for connection in broker.base):
            return None
        for connection in broker.extras:
            if connection.state.may_send(now) and connection.can_carry(wanted):
                return connection
        return self._connections.open_extra(wanted.node)


def _fits(
    wanted_partitions: Iterable[WantedPartition], free: list[FetchConnection], moved: list[WantedPartition]
) -> bool:
    """Whether the free connections can carry all of these in addition to those already moved."""
    taken = {(wanted.session_key[0], wanted.session_key[2]) for wanted in moved}
    return all(
        any(connection.can_carry(wanted) for connection in free)
        and (wanted.session_key[0], wanted.session_key[2]) not in taken
        for wanted in wanted_partitions
    )
