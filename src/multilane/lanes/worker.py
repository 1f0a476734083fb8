"""The parent's side of a worker process, which runs one call at a time and whose death is noticed at once.

Thread: loop.

Owns the process and the socket to it, so the parent always knows which call a dead worker was running, and whether it
had begun.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import pickle
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from multilane.errors import MultilaneError
from multilane.lanes.worker_main import LENGTH, framed, serve
from multilane.outcome.own_thread import on_own_thread

_CHUNK: Final = 64 * 1024


class WorkerDied(MultilaneError):
    """The worker process died while it ran the function: killed (out of memory?), crashed, or ended by the function."""


class NotTaken(Exception):
    """The worker died before it took the call: another worker can run it."""


class RemoteTraceback(Exception):
    """The traceback of a function in its worker process."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"


class WorkerProcess:
    def __init__(self, on_death: Callable[[WorkerProcess], object]) -> None:
        self._loop = asyncio.get_running_loop()
        self._on_death = on_death
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._buffer = bytearray()
        self._process: multiprocessing.process.BaseProcess | None = None
        self._watched = -1
        self._gone = asyncio.Event()
        self.is_busy = False
        self.is_abandoned = False  # we kill it

    async def start(self, *functions: Callable[..., Any]) -> None:
        """Returns when the worker is ready and has imported the functions."""
        process = multiprocessing.get_context("spawn").Process(target=serve, args=(self._theirs, functions))
        self.is_busy = True
        try:
            await on_own_thread(process.start)
            self._watch(process)
            await self._read(1)
        except BaseException as error:
            self.hang_up()
            self._loop.call_soon(self._ours.close)
            if not isinstance(error, EOFError):
                self.kill()  # an import may never end
                raise
            await self._gone.wait()
            raise WorkerDied(f"{self} before it was ready; see its output") from None
        finally:
            self._theirs.close()
        self.is_busy = False

    def __str__(self) -> str:
        if self._process is None:
            return "a worker process that was never started"
        return f"worker process {self._process.pid} {_ending(self._process.exitcode)}"

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def is_alive(self) -> bool:
        return not self._gone.is_set()

    # --- calls -------------------------------------------------------------------------------------------------------

    async def run(self, call: bytes) -> Any:
        """Returns or raises what the function does; `call` is a frame with a pickled function. Raises NotTaken if the
        call never began. If this is cancelled, the worker is killed."""
        is_taken = False
        self.is_busy = True
        try:
            await self._loop.sock_sendall(self._ours, call)
            await self._read(1)
            is_taken = True
            size = int.from_bytes(await self._read(LENGTH), "big")
            answer = await self._read(size)
        except asyncio.CancelledError:
            self.is_abandoned = True
            await self._end()  # before another lane may take the key
            raise
        except (EOFError, OSError):
            await self._end()
            raise (WorkerDied(f"{self} while running the function") if is_taken else NotTaken()) from None
        self.is_busy = False
        has_succeeded, result, trace = pickle.loads(answer)  # noqa: S301 - from our own worker, over its socket pair
        if not has_succeeded:
            raise result from RemoteTraceback(trace)
        return result

    async def _read(self, size: int) -> bytes:
        buffer = self._buffer
        while len(buffer) < size:
            chunk = await self._loop.sock_recv(self._ours, max(_CHUNK, size - len(buffer)))
            if not chunk:
                raise EOFError
            buffer += chunk
        taken = bytes(buffer[:size])
        del buffer[:size]
        return taken

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _end(self) -> None:
        """Kill the worker, even during a call, and wait until it is dead."""
        self.kill()
        self._loop.call_soon(self._ours.close)  # only after the loop has dropped its read
        await self._gone.wait()

    def kill(self) -> None:
        if self._process is not None and self.is_alive:
            self._process.kill()

    def hang_up(self) -> None:
        """The worker ends once it is idle."""
        with suppress(OSError):
            self._ours.shutdown(socket.SHUT_RDWR)

    async def is_gone(self) -> None:
        await self._gone.wait()

    def _watch(self, process: multiprocessing.process.BaseProcess) -> None:
        """Watches a pidfd of the process, if the platform has one: a program that the function has started keeps the
        worker's sockets open."""
        self._process = process
        pidfd = getattr(os, "pidfd_open", None)
        self._watched = process.sentinel if pidfd is None else pidfd(process.pid)
        self._loop.add_reader(self._watched, self._has_died)

    def _has_died(self) -> None:
        self._loop.remove_reader(self._watched)
        if self._process is not None:
            if self._watched != self._process.sentinel:
                os.close(self._watched)
            self._process.join()
        self._gone.set()
        self.hang_up()  # a caller that waits for the answer reads up to the end of the stream
        if not self.is_busy:
            self._ours.close()
        self._on_death(self)


def _ending(exit_code: int | None) -> str:
    if exit_code is None:
        return "runs"
    if exit_code < 0:
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-exit_code).name}"
    return f"ended with exit code {exit_code}"


def call_of(function: Callable[[], Any]) -> bytes:
    return framed(function)
