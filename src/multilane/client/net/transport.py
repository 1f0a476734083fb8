"""Sends and receives bytes over one non-blocking socket, in plaintext or through TLS.

Thread: network.

Three verbs: `establish` until the socket (and the TLS session) is ready, then `send` and `receive_into`. Each does what
is possible at once and never waits. Next to a busy Python thread, every system call that releases the GIL costs up to
five milliseconds, so megabytes must arrive in few calls: `expect` makes the kernel wake the thread only when that many
bytes are there.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import ssl
from collections.abc import Sequence
from typing import Final, Protocol

from multilane.client.net.tls import explain
from multilane.errors import MultilaneError, NetworkError

READ: Final = selectors.EVENT_READ
WRITE: Final = selectors.EVENT_WRITE

_WORTH_WAITING_FOR: Final = 64 * 1024
_LARGEST_LOW_WATER: Final = 1 << 30  # the kernel caps it by its own buffer limit

SocketAddress = tuple[int, tuple[object, ...]]


class Transport(Protocol):
    wants: int
    drained_by_short_read: bool  # whether a short read means that there are no more bytes now

    def fileno(self) -> int: ...
    def establish(self) -> bool: ...
    def send(self, data: memoryview) -> int: ...
    def receive_into(self, target: memoryview) -> int | None: ...
    def expect(self, count: int) -> None: ...
    def close(self) -> None: ...


def open_transport(
    addresses: Sequence[SocketAddress], peer: tuple[str, int], context: ssl.SSLContext | None
) -> PlainTransport:
    """Begin to connect. Call `establish` on the result whenever its socket is ready for `wants`."""
    if context is None:
        return PlainTransport(addresses, peer)
    return TlsTransport(addresses, peer, context)


class PlainTransport:
    drained_by_short_read = True

    def __init__(self, addresses: Sequence[SocketAddress], peer: tuple[str, int]) -> None:
        self._peer = peer
        self._addresses = list(addresses)
        self._low_water = 1
        self._connected = False
        self.wants = WRITE
        self._socket = self._dial(None)

    def fileno(self) -> int:
        return self._socket.fileno()

    def establish(self) -> bool:
        """True when the connection is ready to send and receive."""
        if not self._connected:
            code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                # Dial before closing: with the same file descriptor the selector would mistake the new for the old.
                refused, self._socket = self._socket, self._dial(OSError(code, os.strerror(code)))
                refused.close()
                return False
            self._connected = True
            self.wants = READ
        return True

    def send(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._lost(error) from None

    def receive_into(self, target: memoryview) -> int | None:
        """The number of bytes received; None if there are none now."""
        try:
            count = self._socket.recv_into(target)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._lost(error) from None
        if count == 0:
            raise NetworkError(f"{self._name} closed the connection")
        return count

    def expect(self, count: int) -> None:
        mark = min(count, _LARGEST_LOW_WATER) if count >= _WORTH_WAITING_FOR else 1
        if mark != self._low_water:
            with contextlib.suppress(OSError):  # not supported everywhere; without it the thread only wakes more often
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark)
            self._low_water = mark

    def close(self) -> None:
        self._socket.close()

    @property
    def _name(self) -> str:
        return f"broker {self._peer[0]}:{self._peer[1]}"

    def _dial(self, failure: OSError | None) -> socket.socket:
        """Begin to connect to the next address of the host; raises the last failure if there is no other address."""
        while self._addresses:
            family, address = self._addresses.pop(0)
            try:
                return _begin(family, address)
            except OSError as error:
                failure = error
        reason = "has no address" if failure is None else failure.strerror
        raise NetworkError(f"cannot connect to {self._name}: {reason}")

    def _lost(self, error: OSError) -> NetworkError:
        return NetworkError(f"lost the connection to {self._name}: {error.strerror or error}")


def _begin(family: int, address: tuple[object, ...]) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    code = sock.connect_ex(address)
    if code in (0, errno.EINPROGRESS, errno.EWOULDBLOCK):
        return sock
    sock.close()
    raise OSError(code, os.strerror(code))


class TlsTransport(PlainTransport):
    """The same over TLS. A TLS record has at most 16 KB, so a large frame takes many calls in any case."""

    drained_by_short_read = False

    def __init__(self, addresses: Sequence[SocketAddress], peer: tuple[str, int], context: ssl.SSLContext) -> None:
        super().__init__(addresses, peer)
        self._context = context
        self._tls: ssl.SSLSocket | None = None
        self._secured = False
        self._received = False  # with TLS 1.3 the broker checks our certificate after our side of the handshake

    def establish(self) -> bool:
        if self._secured:
            return True
        if not super().establish():
            return False
        try:
            if self._tls is None:
                self._tls = self._context.wrap_socket(
                    self._socket, server_hostname=self._peer[0], do_handshake_on_connect=False
                )
                self._socket = self._tls
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self.wants = READ
            return False
        except ssl.SSLWantWriteError:
            self.wants = WRITE
            return False
        except (OSError, ValueError) as error:
            raise explain(error, *self._peer) from None
        self.wants = READ
        self._secured = True
        return True

    def send(self, data: memoryview) -> int:
        try:
            return self._socket.send(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return 0
        except ssl.SSLError as error:
            raise explain(error, *self._peer) from None
        except OSError as error:
            raise self._lost(error) from None

    def receive_into(self, target: memoryview) -> int | None:
        try:
            count = self._socket.recv_into(target)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except ssl.SSLEOFError as error:
            raise self._closed(error) from None
        except ssl.SSLError as error:
            raise explain(error, *self._peer) from None
        except OSError as error:
            raise (self._lost(error) if self._received else explain(error, *self._peer)) from None
        if count == 0:
            raise self._closed(ssl.SSLZeroReturnError())
        self._received = True
        return count

    def _closed(self, error: ssl.SSLError) -> MultilaneError:
        """A broker that closes before it sends any data may have refused our certificate without an alert."""
        return NetworkError(f"{self._name} closed the connection") if self._received else explain(error, *self._peer)

    def expect(self, count: int) -> None:
        """Encrypted bytes are not frame bytes: wake at the first one."""
