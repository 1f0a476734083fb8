"""Consumers that are closed and whose groups are still to be told.

Thread: none (pure); owned by the network thread.

Mostly a consumer has left its group before it closes. It has not when the listener's last call raised, when another
thread or task was using it, when the wait was cancelled or interrupted, or when there was no time. Such a consumer
stays on the network thread until its group has been told or its time is up, and is asked once at least: a member that
goes without a word keeps its partitions until its session ends.
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

LAST_WORD: Final = 2.0  # seconds; whoever closes waits no longer for the word that was not said before


@dataclass(frozen=True, slots=True)
class _Departure:
    until: float
    told: Future[None]


class Departures:
    def __init__(self, gone: Callable[[GroupClient], None]) -> None:
        """`gone` is called once for each, when it need not be asked any more."""
        self._gone = gone
        self._leaving: dict[GroupClient, _Departure] = {}

    def begin(self, group_client: GroupClient, until: float, told: Future[None], now: float) -> None:
        """`told` is completed when the group has been told, cannot be, or need not be, and at `until` at the latest."""
        self._leaving[group_client] = _Departure(until, told)
        group_client.part(lambda: fulfil(told, None), now)

    def end(self, now: float) -> float:
        """To be called when participants have been asked. Returns the seconds until the next one's time is up."""
        over = [p for p, departure in self._leaving.items() if departure.told.done() or departure.until <= now]
        for group_client in over:
            fulfil(self._leaving.pop(group_client).told, None)
            self._gone(group_client)
        return min((departure.until - now for departure in self._leaving.values()), default=NEVER)

    def abandon(self) -> None:
        """The thread ends: nobody can be told any more."""
        for departure in self._leaving.values():
            fulfil(departure.told, None)
        self._leaving.clear()
