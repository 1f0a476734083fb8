"""A mock HTTP service that answers every request after a delay: `python -m bench.lane.service <seconds>`.

Thread: loop.

Prints its port, listens on the loopback only. Answers in order and keeps connections open; it is as simple as possible,
because it shares the machine with the measured system.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, cast

from bench.lane.bare import fastest_runner
from bench.lane.sampling import ROOT, end
from bench.lane.work import HOST

_ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
_END_OF_HEAD: Final = b"\r\n\r\n"
_BACKLOG: Final = 4_096


class Served(asyncio.Protocol):
    """One connection. Requests have no body, so a request ends with its head."""

    def __init__(self, latency: float) -> None:
        self._latency = latency
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is of no class of asyncio's

    def data_received(self, data: bytes) -> None:
        *requests, self._received = (self._received + data).split(_END_OF_HEAD)
        for _ in requests:
            asyncio.get_running_loop().call_later(self._latency, self._answer)

    def _answer(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_ANSWER)


async def serve(latency: float) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Served(latency), HOST, 0, backlog=_BACKLOG)
    print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
    await server.serve_forever()


@contextmanager
def service(latency: float) -> Iterator[int]:
    """Starts the service; yields its port."""
    command = [sys.executable, "-m", "bench.lane.service", str(latency)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None  # noqa: S101 (narrows the type: stdout is PIPE)
        yield json.loads(process.stdout.readline())["port"]
    finally:
        end(process)


if __name__ == "__main__":
    fastest_runner()(serve(float(sys.argv[1])))
