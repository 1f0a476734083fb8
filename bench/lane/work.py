"""A handler's work: it waits for a timer, or for an HTTP service.

Thread: loop.

The same code for lanes and for the bare loop. `Http` keeps one connection per concurrent call and does no more than
HTTP/1.1 requires for a known service: lanes are measured, not an HTTP library. aiohttp's client does the same with the
overhead of such a library.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, cast

from bench.lane.scenarios import AIOHTTP, HTTP, SLEEP

if TYPE_CHECKING:
    import aiohttp

HOST = "127.0.0.1"
_END_OF_HEAD = b"\r\n\r\n"

Work = Callable[[], Awaitable[Any]]


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no class of asyncio's

    def ask(self, request: bytes) -> asyncio.Future[bytes]:
        assert self._transport is not None  # noqa: S101
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        self._received += data
        body = body_of(self._received)
        if body is not None and self._answer is not None and not self._answer.done():
            self._received = b""
            self._answer.set_result(body)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionResetError("the service closed the connection"))


def body_of(received: bytes) -> bytes | None:
    """The body of a complete response; None if it is incomplete."""
    head, gap, rest = received.partition(_END_OF_HEAD)
    if not gap:
        return None
    status, *fields = head.split(b"\r\n")
    if b" 200 " not in status:
        raise ValueError(f"the service answered {status!r}")
    length = next(int(f.partition(b":")[2]) for f in fields if f.lower().startswith(b"content-length:"))
    return rest[:length] if len(rest) >= length else None


class Http:
    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: list[Connection] = []
        self._request = f"GET / HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode()

    async def get(self) -> bytes:
        connection = self._idle.pop() if self._idle else await self._connect()
        answer = await connection.ask(self._request)
        self._idle.append(connection)
        return answer

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    async def _connect(self) -> Connection:
        _, connection = await asyncio.get_running_loop().create_connection(Connection, HOST, self._port)
        return connection


class Aiohttp:
    def __init__(self, port: int) -> None:
        self._address = f"http://{HOST}:{port}/"
        self._session: aiohttp.ClientSession | None = None

    async def get(self) -> bytes:
        if self._session is None:
            import aiohttp

            # 0: as many connections as there are lanes; a pool that makes lanes wait would be measured instead.
            self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        async with self._session.get(self._address) as response:
            response.raise_for_status()
            return await response.read()


def work_of(kind: str, latency: float, port: int) -> Work:
    if kind == SLEEP:
        return lambda: asyncio.sleep(latency)
    if kind == HTTP:
        return Http(port).get
    if kind == AIOHTTP:
        return Aiohttp(port).get
    raise ValueError(f"{kind} takes no time")
