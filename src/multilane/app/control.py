"""A socket in the file system over which a running application is steered, by `multilane control`.

Thread: one of its own accepts callers, and each caller has one; requests are answered one at a time.

A request and an answer are a line of JSON each, at most 64 KiB. A caller has five seconds, and no request, however bad,
ends the service. Who may write to the socket may steer: it belongs to the user that runs
the application, and nobody else can open it.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from multilane.errors import ConfigError, MultilaneError
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.app.app import App

log = logger(__name__)

_PATIENCE: Final = 5.0  # seconds for a whole request, and for its answer
_PAUSE: Final = 0.1
_MOST_CALLERS: Final = 16  # at a time
_NOT_UNDERSTOOD: Final = "request not understood: is the client another version of multilane?"
_MOST_BYTES: Final = 65_536
_OWN_ONLY: Final = 0o177  # what is taken from everybody's rights


@contextmanager
def controlled(app: App, path: Path) -> Iterator[None]:
    """While this lasts the application can be steered there."""
    server = _Server(app, _listen(path))
    try:
        yield
    finally:
        server.close()
        path.unlink(missing_ok=True)


def controlled_at(app: App, path: Path | None) -> AbstractContextManager[None]:
    """The same, if there is a path."""
    return nullcontext() if path is None else controlled(app, path)


def ask(path: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    """Of a running application; raises what it answers with if that is an error."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
            line.settimeout(_PATIENCE)
            line.connect(os.fspath(path))
            line.sendall(json.dumps(request).encode() + b"\n")
            answer: dict[str, Any] = json.loads(_line_from(line))
    except (OSError, ValueError, RecursionError) as error:
        why = "nothing listens there" if isinstance(error, FileNotFoundError | ConnectionRefusedError) else str(error)
        raise ConfigError(f"{path}: {why}. Is the application running, with --control {path}?") from None
    if "error" in answer:
        raise ConfigError(str(answer["error"]))
    return answer


def _listen(path: Path) -> socket.socket:
    _remove_dead(path)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(_OWN_ONLY)
    try:
        server.bind(os.fspath(path))
        server.listen()
    except OSError as error:
        server.close()
        raise ConfigError(f"--control {path}: {error.strerror or error}") from error
    finally:
        os.umask(before)
    return server


def _remove_dead(path: Path) -> None:
    """What a killed run has left behind; not somebody's file, nor the socket of one that runs."""
    if not path.is_socket():
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(os.fspath(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise ConfigError(f"--control {path}: another application is steered there already")


class _Server:
    """Serves each caller on its own thread, so a slow one keeps nobody waiting, and answers one request at a time."""

    def __init__(self, app: App, listening: socket.socket) -> None:
        self._app = app
        self._listening = listening
        self._turn = threading.Lock()
        self._callers = threading.BoundedSemaphore(_MOST_CALLERS)
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._accept, name="multilane-control", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._is_closed.set()
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(_PATIENCE)

    def _accept(self) -> None:
        while not self._is_closed.is_set():
            try:
                line, _ = self._listening.accept()
            except OSError as error:  # closed, or out of file descriptors
                if not self._is_closed.wait(_PAUSE):
                    log.warning("--control: cannot accept a caller, trying again: %s", error)
                continue
            self._callers.acquire()
            try:
                threading.Thread(target=self._serve, args=(line,), name="multilane-caller", daemon=True).start()
            except RuntimeError as error:  # out of threads
                log.warning("--control: cannot serve a caller: %s", error)
                self._callers.release()
                line.close()

    def _serve(self, line: socket.socket) -> None:
        too_slow = threading.Timer(_PATIENCE, _cut_off, (line,))  # a timeout of the socket starts over with each byte
        too_slow.daemon = True
        try:
            too_slow.start()
            with line, suppress(OSError):
                said = _line_from(line)
                with self._turn:
                    answer = _answered(self._app, said)
                line.sendall(json.dumps(answer).encode() + b"\n")
        finally:
            too_slow.cancel()
            self._callers.release()


def _cut_off(line: socket.socket) -> None:
    with suppress(OSError):  # it is gone already
        line.shutdown(socket.SHUT_RDWR)


def _line_from(line: socket.socket) -> bytes:
    said = bytearray()
    while not said.endswith(b"\n") and len(said) < _MOST_BYTES:
        more = line.recv(_MOST_BYTES - len(said))
        if not more:
            break
        said += more
    return bytes(said)


def _answered(app: App, said: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(said)
        match asked:
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
        return {"consumers": app.steering()}
    except (ValueError, RecursionError):  # no JSON, or nested too deeply
        return {"error": _NOT_UNDERSTOOD}
    except MultilaneError as error:
        return {"error": str(error)}
    except Exception as error:
        log.exception("--control: a request failed")
        return {"error": f"the request failed with {type(error).__name__}; see the log of the application"}
