"""Bounds what the clients of a server use: some at a time, each on a thread of its own and for a limited time.

Thread: any; each client has its own.

A socket's timeout starts over with each byte, so a deadline for the whole exchange shuts the connection down.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress

from multilane.logs import logger

log = logger(__name__)


class ClientBounds:
    def __init__(self, option: str, thread_name: str, most: int, timeout: float) -> None:
        """`option`: of the command line, for the log. `timeout`: seconds for a client's request and its answer."""
        self._option = option
        self._thread_name = thread_name
        self._timeout = timeout
        self._places = threading.BoundedSemaphore(most)

    def serve(self, connection: socket.socket, exchange: Callable[[], object]) -> None:
        """Waits for a place. `exchange` runs on the client's thread and closes the connection."""
        self._places.acquire()
        deadline = threading.Timer(self._timeout, _cut_off, (connection,))
        deadline.daemon = True
        run = threading.Thread(target=self._run, args=(exchange, deadline), name=self._thread_name, daemon=True)
        try:
            deadline.start()
            run.start()
        except RuntimeError as error:  # out of threads
            log.warning("%s: cannot serve a connection: %s", self._option, error)
            deadline.cancel()
            self._places.release()
            connection.close()

    def _run(self, exchange: Callable[[], object], deadline: threading.Timer) -> None:
        try:
            exchange()
        finally:
            deadline.cancel()
            self._places.release()


def _cut_off(connection: socket.socket) -> None:
    with suppress(OSError):  # already closed
        connection.shutdown(socket.SHUT_RDWR)
