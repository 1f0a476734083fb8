"""A Unix socket over which `multilane control` steers a running application.

Thread: one of its own accepts connections, and each connection has one. Requests are answered one at a time.

A request and its answer are one line of JSON each, 64 KiB at most. A client has five seconds. No request, however bad,
ends the server. Write access to the socket is the permission to steer: it belongs to the user that runs the
application, and no other user can open it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from multilane.app.client_bounds import ClientBounds
from multilane.errors import ConfigError, MultilaneError
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.app.app import App

log = logger(__name__)

_TIMEOUT: Final = 5.0  # seconds for a whole request, and for its answer
_ACCEPT_BACKOFF: Final = 0.1
_MAX_CLIENTS: Final = 16  # at a time
_NOT_UNDERSTOOD: Final = "request not understood: is the client another version of multilane?"
_MAX_BYTES: Final = 65_536
_OWNER_ONLY: Final = 0o177  # umask


@contextmanager
def controlled(app: App, path: Path) -> Iterator[None]:
    """Serve the control socket at this path within this context."""
    server = _Server(app, _listen(path))
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


def controlled_at(app: App, path: Path | None) -> AbstractContextManager[None]:
    """The same; does nothing without a path."""
    return nullcontext() if path is None else controlled(app, path)


def ask(path: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Send a request to a running application. Raises a ConfigError if it answers with an error."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(_TIMEOUT)
            connection.connect(os.fspath(path))
            connection.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(_line_from(connection))
    except (OSError, ValueError, RecursionError) as error:
        why = "nothing listens there" if isinstance(error, FileNotFoundError | ConnectionRefusedError) else str(error)
        raise ConfigError(f"{path}: {why}. Is the application running, with --control {path}?") from None
    if "error" in answer:
        raise ConfigError(str(answer["error"]))
    return answer


def _listen(path: Path) -> socket.socket:
    _remove_stale(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(_OWNER_ONLY)
    try:
        server.bind(os.fspath(path))
        server.listen()
    except OSError as error:
        server.close()
        raise ConfigError(f"--control {path}: {error.strerror or error}") from error
    finally:
        os.umask(before)
    return server


def _remove_stale(path: Path) -> None:
    """Remove the socket that a killed run left behind. Never removes another file, nor the socket of a running
    application."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise ConfigError(f"--control {path}: another application already listens there")


class _Server:
    """Serves each client on its own thread, so that a slow one does not block the others. Answers one request at a
    time."""

    def __init__(self, app: App, listening: socket.socket) -> None:
        self._app = app
        self._listening = listening
        self._answering = threading.Lock()
        self._clients = ClientBounds("--control", "multilane-caller", _MAX_CLIENTS, _TIMEOUT)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="multilane-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(_TIMEOUT)

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                connection, _ = self._listening.accept()
            except OSError as error:  # closed, or out of file descriptors
                if not self._is_closed.wait(_ACCEPT_BACKOFF):
                    log.warning("--control: cannot accept a connection, retrying: %s", error)
                continue
            self._clients.serve(connection, partial(self._serve, connection))

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            request = _line_from(connection)
            with self._answering:
                answer = _answer(self._app, request)
            connection.sendall(json.dumps(answer).encode() + b"\n")


def _line_from(connection: socket.socket) -> bytes:
    received = bytearray()
    while not received.endswith(b"\n") and len(received) < _MAX_BYTES:
        more = connection.recv(_MAX_BYTES - len(received))
        if not more:
            break
        received += more
    return bytes(received)


def _answer(app: App, line: bytes) -> dict[str, Any]:
    try:
        match json.loads(line):
            case {"do": "show"}:
                pass
            case {"do": "progress"}:
                return {"progress": {} if app.progress is None else app.progress.facts()}
            case {"do": "pause", "consumer": str(name)}:
                app.pause(name)
            case {"do": "resume", "consumer": str(name)}:
                app.resume(name)
            case {"do": "lanes", "consumer": str(name), "lanes": int() | None as lanes}:
                app.set_lanes(name, lanes)
            case _:
                return {"error": _NOT_UNDERSTOOD}
        return {"consumers": app.overrides_view()}
    except (ValueError, RecursionError):  # not JSON, or nested too deeply
        return {"error": _NOT_UNDERSTOOD}
    except MultilaneError as error:
        return {"error": str(error)}
    except Exception as error:
        log.exception("--control: a request failed")
        return {"error": f"the request failed with {type(error).__name__}; see the log of the application"}
