"""Worker processes for functions that need a CPU of their own.

Thread: loop; the functions run in the processes.

The function, its records and its result are pickled, so another process must be able to import it. As many calls run at
once as there are workers; further calls wait at the gate, before their processing time starts. Each worker runs one
call: if a worker dies, that call fails, all others continue, and a new worker is started. Cancelling a call kills its
worker. Owns the workers.
"""

from __future__ import annotations

import asyncio
import atexit
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final

from multilane.lanes.worker import NotTaken, WorkerDied, WorkerProcess, call_of
from multilane.logs import logger

log = logger(__name__)

_TAKES: Final = 3  # workers that may die before they take a call; after that the call itself is suspect
_EXIT_GRACE: Final = 1.0  # seconds for workers to end by themselves
_SHORTEST_REST: Final = 0.5
_LONGEST_REST: Final = 30.0


class WorkerGate:
    """Lets in as many calls as there is room for, in the order in which they came."""

    def __init__(self, room: Callable[[], int]) -> None:
        self._room = room
        self._inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def __aenter__(self) -> None:
        if not self._waiting and self._inside < self._room():
            self._inside += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled():
                self._waiting.remove(turn)
            else:
                self._leave()
            raise

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._leave()

    def _leave(self) -> None:
        self._inside -= 1
        self.let_in()

    def let_in(self) -> None:
        """There may be more room."""
        while self._waiting and self._inside < self._room():
            turn = self._waiting.popleft()
            if turn.cancelled():
                self._waiting.appendleft(turn)  # it removes itself
                return
            self._inside += 1
            turn.set_result(None)


class Processes:
    shares_memory = False
    ends_calls = True
    idents = ()

    def __init__(self, workers: int) -> None:
        self.limit: float = workers
        self._wanted = workers
        self._functions: tuple[Callable[..., Any], ...] = ()
        self._workers: set[WorkerProcess] = set()
        self._free: asyncio.Queue[WorkerProcess] = asyncio.Queue()
        self._hiring: set[asyncio.Task[None]] = set()
        self._is_closed = False
        self.gate = WorkerGate(lambda: len(self._workers))

    @property
    def pids(self) -> list[int]:
        """The process ids of workers that are ready or run a call."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    async def start(self, *functions: Callable[..., Any]) -> None:
        """Start all workers and let them import the functions, which takes longer than most calls may. After an error
        it may be called again: workers that are ready stay."""
        self._functions = functions
        atexit.unregister(self._kill)
        atexit.register(self._kill)  # before multiprocessing waits for them
        missing = self._wanted - len(self._workers) - len(self._hiring)
        hired = [asyncio.ensure_future(self._hire()) for _ in range(missing)]
        try:
            await asyncio.gather(*hired)
        finally:
            for task in hired:
                task.cancel()
            await asyncio.gather(*hired, return_exceptions=True)

    async def __call__(self, function: Callable[[], Any]) -> Any:
        call = call_of(function)
        for _ in range(_TAKES):
            if self._is_closed:
                raise WorkerDied("the worker processes were stopped before one could take the call")
            worker = await self._free_worker()
            try:
                return await worker.run(call)
            except NotTaken:
                continue
            finally:
                if worker.is_alive:
                    self._free.put_nowait(worker)
        raise WorkerDied(f"{_TAKES} worker processes died before they could take the call")

    async def _free_worker(self) -> WorkerProcess:
        while True:
            worker = await self._free.get()
            if worker.is_alive:
                return worker

    def withdraw(self) -> None:
        """No call waits here: calls wait at the gate."""

    # --- starting and replacing workers ------------------------------------------------------------------------------

    async def _hire(self) -> None:
        worker = WorkerProcess(self._has_died)
        await worker.start(*self._functions)
        if self._is_closed:
            worker.kill()
            return
        self._workers.add(worker)
        self._free.put_nowait(worker)
        self.gate.let_in()

    def _has_died(self, worker: WorkerProcess) -> None:
        if worker not in self._workers:
            return  # it was never ready
        self._workers.discard(worker)
        if self._is_closed:
            return
        if worker.is_abandoned:
            log.warning("%s, because its call was abandoned. Starting another", worker)
        else:
            when = "while running a function; that call fails" if worker.is_busy else "while it was idle"
            log.error("%s %s. Starting another", worker, when)
        task = asyncio.get_running_loop().create_task(self._replace())
        self._hiring.add(task)
        task.add_done_callback(self._hiring.discard)

    async def _replace(self) -> None:
        rest = _SHORTEST_REST
        while not self._is_closed:
            try:
                await self._hire()
            except Exception as error:  # noqa: BLE001 - too little memory, too many processes: may be temporary
                log.error("cannot start a worker process, retrying in %g s: %s", rest, error)  # noqa: TRY400
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=rest)
                rest = min(_LONGEST_REST, 2 * rest)
            else:
                return

    async def close(self) -> None:
        """Idle workers end by themselves. The others are killed: their calls are not settled."""
        self._is_closed = True
        atexit.unregister(self._kill)
        for task in self._hiring:
            task.cancel()
        workers = list(self._workers)
        for worker in workers:
            worker.kill() if worker.is_busy else worker.hang_up()
        if workers:
            gone = [asyncio.ensure_future(worker.is_gone()) for worker in workers]
            await asyncio.wait(gone, timeout=_EXIT_GRACE)
            self._kill()
            await asyncio.wait(gone, timeout=_EXIT_GRACE)
            for waiting in gone:
                waiting.cancel()

    def _kill(self) -> None:
        for worker in list(self._workers):
            worker.kill()
