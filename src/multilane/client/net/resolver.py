"""Resolves host names without making the network thread wait for a name server.

Thread: network; the lookup itself runs in the given thread pool.

IP addresses and `localhost` resolve at once. Every other name is looked up again for each connection, because addresses
change. So a result that no connection takes in time is discarded.
"""

from __future__ import annotations

import ipaddress
import math
import socket
from collections.abc import Callable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from typing import Final

from multilane.client.net.transport import SocketAddress
from multilane.errors import NetworkError

_GOOD_FOR: Final = 5.0  # seconds

NameLookup = Callable[[str, int], list[SocketAddress]]


def look_up(host: str, port: int) -> list[SocketAddress]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


@dataclass(slots=True, eq=False)
class _NameLookup:
    future: Future[list[SocketAddress]]
    done_at: float = math.inf  # written once, by the thread of the lookup


class Resolver:
    def __init__(
        self,
        pool: Callable[[], Executor],
        wake: Callable[[], None],
        monotonic: Callable[[], float],
        look: NameLookup = look_up,
    ) -> None:
        self._pool = pool
        self._wake = wake
        self._look = look
        self._monotonic = monotonic
        self._under_way: dict[tuple[str, int], _NameLookup] = {}

    def addresses(self, host: str, port: int) -> list[SocketAddress] | None:
        """The host's addresses; None during the lookup (`wake` is called when it is done)."""
        if _is_local(host):
            return self._checked(host, port, lambda: self._look(host, port))
        key = (host, port)
        lookup = self._under_way.get(key)
        if lookup is None or self._monotonic() > lookup.done_at + _GOOD_FOR:
            lookup = self._under_way[key] = self._ask(host, port)
        if lookup.done_at == math.inf:
            return None
        del self._under_way[key]
        return self._checked(host, port, lookup.future.result)

    def _ask(self, host: str, port: int) -> _NameLookup:
        lookup = _NameLookup(self._pool().submit(self._look, host, port))

        def done(_: object) -> None:
            lookup.done_at = self._monotonic()
            self._wake()

        lookup.future.add_done_callback(done)
        return lookup

    def _checked(self, host: str, port: int, result: Callable[[], list[SocketAddress]]) -> list[SocketAddress]:
        try:
            return result()
        except (OSError, UnicodeError) as error:
            reason = getattr(error, "strerror", None) or error
            raise NetworkError(f"cannot resolve broker {host}:{port}: {reason}") from None


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
