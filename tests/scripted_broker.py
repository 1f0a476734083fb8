"""A broker that says what a test told it to: real sockets on the loopback, a thread per connection.

It introduces itself as able to do everything this client speaks, unless the test answers ApiVersions itself. To every
other request it gives the answer in `answers` (by API), and stays silent where there is none.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from multilane.wire.messages import ApiKey
from response_builder import api_versions_response, frame_of, framed, read_request


@dataclass(frozen=True)
class Asked:
    """One request as it came, and the connection it came on."""

    api: ApiKey
    version: int
    correlation_id: int
    entity: Any
    link: socket.socket

    def answer(self, entity: Any) -> None:
        self.link.sendall(framed(frame_of(entity, self.correlation_id)))

    def send(self, data: bytes) -> None:
        self.link.sendall(data)

    def hang_up(self) -> None:
        self.link.shutdown(socket.SHUT_RDWR)


def introduce(asked: Asked) -> None:
    asked.answer(api_versions_response(asked.version))


class ScriptedBroker:
    def __init__(self, answers: dict[ApiKey, Callable[[Asked], None]] | None = None) -> None:
        self.answers: dict[ApiKey, Callable[[Asked], None]] = {ApiKey.API_VERSIONS: introduce, **(answers or {})}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._changed = threading.Condition()
        self._asked: list[Asked] = []
        self._links: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> ScriptedBroker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def connections(self) -> int:
        with self._changed:
            return len(self._links)

    def asked(self, api: ApiKey) -> list[Asked]:
        with self._changed:
            return [a for a in self._asked if a.api is api]

    def wait_for(self, api: ApiKey, count: int = 1, timeout: float = 10.0) -> list[Asked]:
        with self._changed:
            met = self._changed.wait_for(lambda: sum(a.api is api for a in self._asked) >= count, timeout)
            assert met, f"{api.name} was not asked {count} times"
        return self.asked(api)

    def hang_up(self) -> None:
        with self._changed:
            for link in self._links:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.hang_up()
        for thread in self._threads:
            thread.join(10.0)
        for link in self._links:
            link.close()

    def _accept(self) -> None:
        while True:
            try:
                link, _ = self._listener.accept()
                link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except OSError:
                return
            with self._changed:
                self._links.append(link)
                self._changed.notify_all()
            thread = threading.Thread(target=self._serve, args=(link,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, link: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while (frame := read_frame(link)) is not None:
                asked = Asked(*read_request(frame), link)
                with self._changed:
                    self._asked.append(asked)
                    self._changed.notify_all()
                answer = self.answers.get(asked.api)
                if answer is not None:
                    answer(asked)


def read_frame(link: socket.socket) -> bytes | None:
    """One frame without its length; None when the other side is gone."""
    head = _read(link, 4)
    return None if head is None else _read(link, int.from_bytes(head, "big"))


def _read(link: socket.socket, count: int) -> bytes | None:
    data = b""
    while len(data) < count:
        got = link.recv(count - len(data))
        if not got:
            return None
        data += got
    return data
