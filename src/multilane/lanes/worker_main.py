"""The worker's side of a worker process: takes a call, runs it, answers, and waits for the next one.

Thread: the main thread of a worker process.

A frame is its length in eight bytes and a pickle. The worker sends one byte when it is ready and one when it has taken
a call, so that its parent knows whether a dead worker had begun. It ends when its parent hangs up or dies.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.reduction import ForkingPickler
from socket import socket
from typing import Any, Final

from multilane.outcome.raised import failure_on_thread

READY: Final = b"R"
TAKEN: Final = b"T"
LENGTH: Final = 8


def framed(value: object) -> bytes:
    content = bytes(ForkingPickler.dumps(value))
    return len(content).to_bytes(LENGTH, "big") + content


def serve(connection: socket, functions: tuple[Callable[..., Any], ...]) -> None:
    """`functions` are passed in only so that unpickling them imports all that they need."""
    del functions
    _belong_to_parent()
    stream = connection.makefile("rb")
    with suppress(ConnectionError):  # the parent no longer wants the answer
        connection.sendall(READY)
        while len(length := stream.read(LENGTH)) == LENGTH:
            call = stream.read(int.from_bytes(length, "big"))
            connection.sendall(TAKEN)
            connection.sendall(_answer_to(call))
            del call


def _answer_to(call: bytes) -> bytes:
    """Whether it succeeded, what it returned or raised, and the traceback."""
    try:
        return framed((True, pickle.loads(call)(), ""))  # noqa: S301 - from our parent, over its own socket pair
    except BaseException as error:  # noqa: BLE001 - the user's function may raise anything
        return _failed(error)


def _failed(error: BaseException) -> bytes:
    trace = "".join(traceback.format_exception(error))
    try:
        answer = framed((False, failure_on_thread(error), trace))
        pickle.loads(answer[LENGTH:])  # noqa: S301 - some exceptions can be pickled but not unpickled
    except BaseException:  # noqa: BLE001 - pickling runs code of its class
        summary = "".join(traceback.format_exception_only(error)).strip()
        return framed((False, RuntimeError(summary), trace))
    return answer


def _belong_to_parent() -> None:
    """Ctrl-C in a terminal and a service manager's SIGTERM reach every process of a process group, but the parent
    decides when its workers end. A worker whose parent was killed would wait forever, so each watches its parent."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _ignore)  # not SIG_IGN, which programs that the function starts would inherit
    threading.Thread(target=_end_with_parent, name="multilane-parent", daemon=True).start()


def _ignore(number: int, frame: object) -> None:
    """The parent decides."""


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)
