"""Turns what a user's function raised into a failure of its record.

Thread: any.

SystemExit, KeyboardInterrupt and GeneratorExit end threads, tasks and event loops. If a function raises one of them,
its record fails and nothing ends. Only a real Ctrl-C ends the process.
"""

from __future__ import annotations

import asyncio
import asyncio.runners
import signal
import threading


class Interrupted(KeyboardInterrupt):
    """A second Ctrl-C: everything ends now."""


def as_failure(error: BaseException) -> Exception:
    """An exception that futures and tasks can carry. Raises the error itself if it is a real Ctrl-C."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    if is_ctrl_c(error):
        raise error
    return failure_on_thread(error)


def failure_on_thread(error: BaseException) -> Exception:
    """The same for an error from a thread or another process, where signals do not raise."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    failure = RuntimeError(f"the function raised {error!r}")
    failure.__cause__ = error
    return failure


def is_cancelled(error: BaseException) -> bool:
    """Whether this task was cancelled. A function may also raise a CancelledError of its own."""
    task = asyncio.current_task() if isinstance(error, asyncio.CancelledError) else None
    return task is not None and task.cancelling() > 0


def is_ctrl_c(error: BaseException) -> bool:
    """Whether a signal raised this. Python's own handler leaves no trace of itself, so while it is installed any
    KeyboardInterrupt on the main thread counts as one: a Ctrl-C that is ignored would be worse."""
    if isinstance(error, Interrupted):
        return True
    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler or _was_raised_by_asyncio(error)


def _was_raised_by_asyncio(error: KeyboardInterrupt) -> bool:
    """`asyncio.run` handles SIGINT: its second one raises."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and trace.tb_frame.f_code.co_filename == asyncio.runners.__file__
