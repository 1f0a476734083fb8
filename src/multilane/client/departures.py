"""Group members whose consumers are closed and that have not yet left their groups.

Thread: none (pure); owned by the network thread.

Usually a consumer leaves its group before it closes. It could not if the listener's last call raised, if another thread
or task was using it, if the wait was cancelled or interrupted, or if there was no time. Such a member stays on the
network thread until it has left or its deadline has passed, and is polled at least once: a member that disappears
without a LeaveGroup request keeps its partitions until its session times out.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from multilane.client.futures import fulfil
from multilane.client.net.requests import NEVER

if TYPE_CHECKING:
    from multilane.client.group.group_client import GroupClient

LEAVE_SECONDS: Final = 2.0  # close() waits at most this long for a member that had not left its group before


@dataclass(frozen=True, slots=True)
class _Departure:
    until: float
    left: Future[None]


class Departures:
    def __init__(self, on_departed: Callable[[GroupClient], None]) -> None:
        """`on_departed` is called once for each group client, when it need not be polled any more."""
        self._on_departed = on_departed
        self._leaving: dict[GroupClient, _Departure] = {}

    def begin(self, group_client: GroupClient, until: float, left: Future[None], now: float) -> None:
        """Completes `left` when the member has left its group, or cannot or need not; at `until` at the latest."""
        self._leaving[group_client] = _Departure(until, left)
        group_client.part(lambda: fulfil(left, None), now)

    def end(self, now: float) -> float:
        """Call this after polling the group clients. Returns the seconds until the next deadline."""
        over = [p for p, departure in self._leaving.items() if departure.left.done() or departure.until <= now]
        for group_client in over:
            fulfil(self._leaving.pop(group_client).left, None)
            self._on_departed(group_client)
        return min((departure.until - now for departure in self._leaving.values()), default=NEVER)

    def abandon(self) -> None:
        """The thread ends: no request can be sent any more."""
        for departure in self._leaving.values():
            fulfil(departure.left, None)
        self._leaving.clear()
