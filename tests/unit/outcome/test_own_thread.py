"""A function on a thread of its own: its result comes back, and the process need not wait for it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from contextvars import ContextVar

import pytest

from multilane.outcome.own_thread import on_own_thread

WHO: ContextVar[str] = ContextVar("WHO", default="nobody")

HANGING = """
import asyncio, threading
from multilane.outcome.own_thread import on_own_thread

async def main():
    began = threading.Event()
    def hang():
        began.set()
        threading.Event().wait()
    task = asyncio.create_task(on_own_thread(hang))
    while not began.is_set():
        await asyncio.wait([task], timeout=0.01)
    task.cancel()

asyncio.run(main())
print("ended")
"""


async def test_what_it_gives_comes_back():
    WHO.set("me")
    result = await on_own_thread(lambda a, b: (a + b, WHO.get(), threading.current_thread().daemon), 1, 2)
    assert result == (3, "me", True)


@pytest.mark.parametrize(
    ("raised", "heard"), [(ValueError("no"), ValueError), (StopIteration(), RuntimeError), (SystemExit(), RuntimeError)]
)
async def test_what_it_raises_does_too(raised, heard):
    def function():
        raise raised

    with pytest.raises(heard):
        await on_own_thread(function)


async def test_who_is_cancelled_leaves_it_to_itself():
    gate, ended = threading.Event(), threading.Event()

    def function():
        gate.wait(10)
        ended.set()

    task = asyncio.create_task(on_own_thread(function))
    await asyncio.wait([task], timeout=0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    assert await asyncio.to_thread(ended.wait, 10)


def test_one_that_hangs_does_not_hold_up_the_end_of_the_process():
    result = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "ended\n"
