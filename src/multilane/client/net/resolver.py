"""Host names to addresses, without making the network thread wait for a name server.

Thread: network; the look-up itself runs on a thread of the pool that is handed in.

Numbers and `localhost` are answered at once. Every other name is looked up anew for each connection: names move.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable
from concurrent.futures import Executor, Future

from multilane.client.net.transport import SocketAddress
from multilane.errors import NetworkError

Look = Callable[[str, int], list[SocketAddress]]


def look_up(host: str, port: int) -> list[SocketAddress]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


class Resolver:
    def __init__(self, pool: Callable[[], Executor], wake: Callable[[], None], look: Look = look_up) -> None:
        self._pool = pool
        self._wake = wake
        self._look = look
        self._under_way: dict[tuple[str, int], Future[list[SocketAddress]]] = {}

    def addresses(self, host: str, port: int) -> list[SocketAddress] | None:
        """The host's addresses; None while they are being looked up (`wake` is called when they are here)."""
        if _is_local(host):
            return self._checked(host, port, lambda: self._look(host, port))
        key = (host, port)
        future = self._under_way.get(key)
        if future is None:
            future = self._under_way[key] = self._pool().submit(self._look, host, port)
            future.add_done_callback(lambda _: self._wake())
        if not future.done():
            return None
        del self._under_way[key]
        return self._checked(host, port, future.result)

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
