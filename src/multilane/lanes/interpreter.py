"""The interpreter and its event loop, as lanes want them.

Thread: application (of the whole process).
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

# The loop's own objects live long; with the default threshold a collection of the youngest comes every 700 of them.
_COLLECT_AFTER: Final = (50_000, 20, 50)
# Less, and hundreds of threads that wait for the interpreter take it from the loop over and over: half of the calls.
_SWITCH_SECONDS: Final = 0.002


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


@contextmanager
def tuned_interpreter() -> Iterator[None]:
    """What was loaded so far stays: without it a full collection stops the loop for a tenth of a second. And the loop
    gets the interpreter back from decoders soon after it wakes up, not after five milliseconds."""
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


@contextmanager
def loop_on_thread(name: str) -> Iterator[asyncio.AbstractEventLoop]:
    """An event loop that runs on a thread of its own, and ends with this."""
    made = loop_factory()
    loop = asyncio.new_event_loop() if made is None else made()
    with tuned_interpreter():
        thread = threading.Thread(target=loop.run_forever, name=name, daemon=True)
        thread.start()
        try:
            yield loop
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()
