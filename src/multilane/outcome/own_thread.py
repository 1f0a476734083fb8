"""Runs a function on a thread of its own, which may be left behind.

Thread: loop; the function runs on a thread that ends with it.

asyncio joins its own threads when the loop ends: a function that hangs on one of them would keep the process from
ending.
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
    """Returns or raises what the function does. If the caller is cancelled, the function keeps running."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = copy_context()

    def resolve(result: T | None, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(result)  # type: ignore[arg-type]
        else:  # an error that ends a thread must not end the loop
            future.set_exception(failure_on_thread(error))

    def run() -> None:
        result: T | None = None
        failure: BaseException | None = None
        try:
            result = context.run(function, *arguments)
        except BaseException as error:  # noqa: BLE001 - the caller gets it
            failure = error
        try:
            loop.call_soon_threadsafe(resolve, result, failure)
        except RuntimeError:
            return  # the loop is closed: the caller is gone
        finally:
            del failure

    threading.Thread(target=run, name="multilane-call", daemon=True).start()
    return await future
