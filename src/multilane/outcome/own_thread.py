"""A function on a thread of its own, which nobody has to wait for.

Thread: loop; the function runs on a thread that ends with it.

asyncio's own threads are joined when the loop ends: a function that hangs there would hold up the end of the process
for as long.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import Any, TypeVar

from multilane.outcome.raised import failure_on_thread

T = TypeVar("T")


async def on_own_thread(function: Callable[..., T], *arguments: Any) -> T:
    """What it gives or raises. Whoever is cancelled meanwhile leaves it to itself."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = copy_context()

    def tell(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:  # nothing that ends a thread ends the loop
            future.set_exception(failure_on_thread(error))

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = context.run(function, *arguments)
        except BaseException as error:  # noqa: BLE001 - whoever called hears of it
            failure = error
        try:
            loop.call_soon_threadsafe(tell, result, failure)
        except RuntimeError:
            return  # the loop is closed: nobody listens any more
        finally:
            del failure

    threading.Thread(target=run, name="multilane-call", daemon=True).start()
    return await future
