"""A socket in the file system over which a running application is steered, by `multilane control`.

Thread: one of its own, which answers one caller after the other.

A request and an answer are a line of JSON each. Who may write to the socket may steer: it belongs to the user that runs
the application, and nobody else can open it.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from multilane.errors import ConfigError, MultilaneError

if TYPE_CHECKING:
    from multilane.runtime.app import App

log = logging.getLogger(__name__)

_PATIENCE: Final = 5.0  # seconds for a caller to say something
_MOST_BYTES: Final = 65_536
_OWN_ONLY: Final = 0o177  # what is taken from everybody's rights


@contextmanager
def controlled(app: App, path: Path) -> Iterator[None]:
    """While this lasts the application can be steered there."""
    server = _listen(path)
    thread = threading.Thread(target=_answer_all, args=(server, app), name="multilane-control", daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join(_PATIENCE)
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
    except (OSError, ValueError) as error:
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


def _answer_all(server: socket.socket, app: App) -> None:
    while True:
        try:
            line, _ = server.accept()
        except OSError:
            return  # it is closed
        with line, suppress(OSError):
            line.settimeout(_PATIENCE)
            line.sendall(json.dumps(_answered(app, _line_from(line))).encode() + b"\n")


def _line_from(line: socket.socket) -> bytes:
    said = b""
    while not said.endswith(b"\n") and len(said) < _MOST_BYTES:
        more = line.recv(_MOST_BYTES)
        if not more:
            break
        said += more
    return said


def _answered(app: App, said: bytes) -> dict[str, Any]:
    try:
        asked = json.loads(said)
        match asked:
            case {"do": "show"}:
                pass
            case {"do": "pause", "consumer": str(name)}:
                app.pause(name)
            case {"do": "resume", "consumer": str(name)}:
                app.resume(name)
            case {"do": "lanes", "consumer": str(name), "lanes": int() | None as lanes}:
                app.set_lanes(name, lanes)
            case _:
                return {"error": "this is not understood here: is it another version of multilane?"}
    except ValueError:
        return {"error": "this is not understood here: is it another version of multilane?"}
    except MultilaneError as error:
        return {"error": str(error)}
    return {"consumers": app.steering()}
