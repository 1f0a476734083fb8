"""Dialling: every address gets its chance, and what the system refuses is a broker that cannot be reached."""

from __future__ import annotations

import socket

import pytest

from multilane.client.net.transport import PlainTransport
from multilane.errors import NetworkError


def address_of(listener: socket.socket) -> tuple[int, tuple[object, ...]]:
    return socket.AF_INET, listener.getsockname()


def test_an_address_that_cannot_be_dialled_is_passed_over():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = PlainTransport([(9999, ("nowhere", 1)), address_of(listener)], ("host", 1))
        peer, _ = listener.accept()
        assert transport.establish()
        peer.close()
        transport.close()


def test_the_last_failure_is_reported():
    with pytest.raises(NetworkError, match=r"cannot connect to broker host:1: \w+"):
        PlainTransport([(9999, ("nowhere", 1))], ("host", 1))


def test_the_next_address_has_a_socket_that_the_selector_cannot_mistake(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        transport = PlainTransport([address_of(listener), address_of(listener)], ("host", 1))
        first = transport.fileno()
        monkeypatch.setattr(transport, "_socket", RefusedLater(transport._socket))
        assert not transport.establish()
        assert transport.fileno() != first
        transport.close()


class RefusedLater:
    """A socket whose connection is refused after a while, as by a remote host."""

    def __init__(self, real: socket.socket) -> None:
        self._real = real

    def getsockopt(self, *_: int) -> int:
        return 111

    def __getattr__(self, name: str) -> object:
        return getattr(self._real, name)
