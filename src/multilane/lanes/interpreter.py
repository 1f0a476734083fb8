"""Event loops and interpreter settings for lanes.

Thread: application (for the whole process).

Users' coroutines run on these loops, and a loop must survive them: a task that raises SystemExit does not end it, and a
task that ignores its cancellation does not keep it from ending.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from multilane.lanes.daemon_threads import DaemonThreads
from multilane.logs import logger
from multilane.outcome.raised import is_ctrl_c

log = logger(__name__)
T = TypeVar("T")

# The loop's own objects live long; the default threshold collects the youngest generation after every 700 of them.
_COLLECT_AFTER: Final = (50_000, 20, 50)
# With less, hundreds of threads that wait for the GIL keep taking it from the loop, which costs half of the calls.
_SWITCH_SECONDS: Final = 0.002
_LONGEST_BLOCK: Final = 5.0  # seconds that a function may block a loop that is ending
_CANCEL_GRACE: Final = 1.0  # seconds for tasks that were cancelled at the end


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@contextmanager
def tuned_interpreter() -> Iterator[None]:
    """Freezes the objects loaded so far: otherwise a full collection stops the loop for a tenth of a second. And the
    loop gets the GIL back from decoders soon after it wakes up, not after five milliseconds."""
    before, interval = gc.get_threshold(), sys.getswitchinterval()
    gc.collect()
    gc.freeze()
    gc.set_threshold(*_COLLECT_AFTER)
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(interval)
        gc.set_threshold(*before)
        gc.unfreeze()


def run_to_end(main: Coroutine[Any, Any, T]) -> T:
    """`asyncio.run` for an application: it returns when `main` has ended, whatever other tasks do."""
    loop = _new_loop()
    try:
        task = loop.create_task(main)
        return despite_exits(lambda: loop.run_until_complete(task), task.done)
    finally:
        _end(loop)


def despite_exits(run: Callable[[], T], is_over: Callable[[], bool]) -> T:
    """`run` runs an event loop. asyncio lets a task's SystemExit and KeyboardInterrupt end the loop for all tasks. The
    code that awaits the task gets the error anyway, so the loop continues; only a real Ctrl-C ends it."""
    while True:
        try:
            return run()
        except (SystemExit, KeyboardInterrupt) as error:
            if is_over() or is_ctrl_c(error):
                raise
            log.exception("a task raised %s; the event loop keeps running", type(error).__name__)


@contextmanager
def loop_on_thread(name: str) -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs on a thread of its own, and ends with this context."""
    loop, is_over = _new_loop(), threading.Event()

    def run() -> None:
        despite_exits(loop.run_forever, is_over.is_set)

    with tuned_interpreter():
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        try:
            yield loop
        finally:
            is_over.set()
            loop.call_soon_threadsafe(loop.stop)
            thread.join(_LONGEST_BLOCK)
            if thread.is_alive():
                log.error("event loop %s is blocked by a function; abandoning it", name)
            else:
                loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    made = loop_factory()
    loop = asyncio.new_event_loop() if made is None else made()
    loop.set_default_executor(DaemonThreads())
    return loop


def _end(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel the remaining tasks, and abandon those that ignore their cancellation."""
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    try:
        if tasks:
            ending = loop.create_task(_wait(tasks))
            despite_exits(lambda: loop.run_until_complete(ending), ending.done)
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        abandoned = [task for task in tasks if not task.done()]
        for task in abandoned:
            log.error("abandoning a task that ignores its cancellation: %s", task)
            task._log_destroy_pending = False  # type: ignore[attr-defined] # noqa: SLF001 - it is logged already
        if abandoned:
            _keep_forever(abandoned)
        loop.close()


def _keep_forever(tasks: list[asyncio.Task[Any]]) -> None:
    """A coroutine without references is closed. Its function may ignore that too, forever, while the process exits; and
    a lane would treat it as a failure of its record. A coroutine that a thread references is never closed."""

    def hold(held: list[asyncio.Task[Any]]) -> None:
        threading.Event().wait()
        del held

    threading.Thread(target=hold, args=(tasks,), name="multilane-abandoned", daemon=True).start()


async def _wait(tasks: set[asyncio.Task[Any]]) -> None:
    await asyncio.wait(tasks, timeout=_CANCEL_GRACE)
