"""Runs several processes of one application on this machine, each a member of its groups: Python uses one core in each.

Thread: application (the main thread: signals).

Owns the processes. A signal shuts them down gracefully. A killed process is restarted after a back-off that grows with
each death, and the others go on. If one exits by itself, the others are shut down and its failure is raised. Exit codes
cannot tell the two apart, because a library may end the process with any code: a member reports its exit. If this
process disappears, for any reason, they shut down by themselves.

Members report counts, failures and gauges each second. This process logs the progress of all, serves their metrics, and
passes on overrides from the control socket.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Final

from multilane.app.control import controlled_at
from multilane.app.member_checks import check_members_differ
from multilane.app.member_process import run_member
from multilane.app.metrics_server import served
from multilane.app.signals import signals_stop
from multilane.app.targets import find_app
from multilane.clock import Clock, SystemClock
from multilane.engines.process.messages import (
    FromMemberProcess,
    MemberExit,
    MemberReport,
    OverridesChange,
    ToMemberProcess,
)
from multilane.errors import MemberFailed
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.lanes.progress import Progress
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.runtime.restarts import Restarts

log = logger(__name__)

_MOST_RESTARTS: Final = 8  # of a killed member that then exits by itself: about three minutes
# To read the last reports of a process that has ended. A child of it may live on and hold the connection open.
_READ_SECONDS: Final = 1.0


def run_member_processes(
    target: str, members: int, log_level: str, *, metrics: str | None = None, control: Path | None = None
) -> None:
    """Run until SIGTERM, SIGINT, or the exit of a member that a restart does not repair."""
    app = find_app(target)
    check_members_differ(app)  # report a problem once, before any process starts
    stop_receiver, stop_sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    with served(app, metrics), signals_stop(lambda: stop_sender.send(None)):
        processes = MemberProcesses(target, members, log_level, SystemClock(), app.observer)
        app.progress = processes.progress
        with app.overrides.applied_by(processes.apply_overrides), controlled_at(app, control):
            _run(processes, stop_receiver)


def _run(processes: MemberProcesses, stop: Connection) -> None:
    try:
        ended = processes.supervise(stop)
        processes.terminate()
    except BaseException:  # a second Ctrl-C
        processes.kill()
        raise
    failed = next((one for one in processes.started if _has_failed(one, one is ended)), None)
    if failed is not None:
        text = _exit_text(failed.exitcode or 0, by_itself=True)
        raise MemberFailed(f"{failed.name} {text}; the other members were shut down")


class MemberLink:
    """The parent's end of a member's connection. Its thread passes on reports until the process ends."""

    def __init__(self, connection: Connection, take: Callable[[MemberReport], None]) -> None:
        self._connection = connection
        self._take = take
        self._has_reported_exit = False
        self._thread = threading.Thread(target=self._receive, name="multilane-member", daemon=True)
        self._thread.start()

    def send(self, message: ToMemberProcess) -> None:
        with suppress(OSError):  # the process has ended
            self._connection.send(message)

    def _receive(self) -> None:
        with self._connection, suppress(EOFError, OSError):
            while isinstance(message := self._received(), MemberReport):
                self._take(message)
            self._has_reported_exit = isinstance(message, MemberExit)

    def _received(self) -> FromMemberProcess:
        message: FromMemberProcess = self._connection.recv()
        return message

    def join(self) -> bool:
        """Take the last reports of a process that has ended. Returns whether it reported its exit."""
        self._thread.join(_READ_SECONDS)
        return self._has_reported_exit


class MemberProcesses:
    """The processes, by number. A killed one is missing until its restart is due."""

    def __init__(
        self, target: str, members: int, log_level: str, clock: Clock, observer: Observer = NO_OBSERVER
    ) -> None:
        """`observer` receives what members count."""
        self._target = target
        self._members = members
        self._log_level = log_level
        self._clock = clock
        self.progress = Progress(observer, clock)
        self._processes: dict[int, SpawnProcess] = {}
        self._lock = threading.Lock()  # of links and overrides
        self._links: dict[int, MemberLink] = {}
        self._overrides: dict[str, ConsumerOverrides] = {}
        self._restarts = [Restarts() for _ in range(members)]
        self._due: dict[int, float] = dict.fromkeys(range(members), clock.monotonic())

    @property
    def started(self) -> list[SpawnProcess]:
        return list(self._processes.values())

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        """From any thread. Members that start later get them too."""
        with self._lock:
            self._overrides[consumer] = overrides
            for link in self._links.values():
                link.send(OverridesChange(consumer, overrides))

    def supervise(self, stop: Connection) -> SpawnProcess | None:
        """Start processes when they are due, until a stop is received or one ends for good. Returns that one."""
        self.progress.begin(self._clock.monotonic())
        while True:
            self._start_due()
            numbers = {process.sentinel: number for number, process in self._processes.items()}
            wait_for: list[Connection | int] = [stop, *numbers]
            ready = wait(wait_for, self._until_due())
            if (now := self._clock.monotonic()) >= self.progress.due:
                self.progress.log_progress(now, f"{len(self._processes)} of {self._members} members run; ")
            if stop in ready:
                return None
            for number in [numbers[one] for one in ready if isinstance(one, int)]:
                if not self._restart(number):
                    return self._processes[number]

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        for number in [number for number, due in self._due.items() if due <= now]:
            del self._due[number]
            spawn = multiprocessing.get_context("spawn")
            ours, theirs = spawn.Pipe()
            # Not daemons: daemons may not have child processes, and `processes: n` needs some.
            process = spawn.Process(
                target=run_member,
                args=(self._target, number, self._log_level, theirs),
                name=f"member {number + 1} of {self._members}",
            )
            self._processes[number] = process
            self._restarts[number].start(now)
            process.start()
            theirs.close()  # so that ours reads the end when the member has ended
            self._link(number, MemberLink(ours, partial(self._take, number)))

    def _take(self, number: int, report: MemberReport) -> None:
        self.progress.add(report.news, worker=number)

    def _link(self, number: int, link: MemberLink) -> None:
        with self._lock:
            self._links[number] = link
            for consumer, overrides in self._overrides.items():
                link.send(OverridesChange(consumer, overrides))

    def _until_due(self) -> float:
        return max(0.0, min([self.progress.due, *self._due.values()]) - self._clock.monotonic())

    def _restart(self, number: int) -> bool:
        """Schedule a restart if the member was killed. Returns False if it exited by itself: it logged why and would
        exit again. But shortly after a kill the group may reject it until the session of its predecessor times out, so
        then it is restarted too."""
        process = self._processes[number]
        process.join()
        code, now = process.exitcode or 0, self._clock.monotonic()
        by_itself = self._unlink(number)
        if by_itself and not (code and 0 < self._restarts[number].deaths_in_a_row(now) < _MOST_RESTARTS):
            return False
        seconds = self._restarts[number].wait_after_death(now)
        self._due[number] = now + seconds
        del self._processes[number]
        deaths = self._restarts[number].deaths
        text = "%s %s. Restarting it in %g s (death %d in a row)"
        log.error(text, process.name, _exit_text(code, by_itself=by_itself), seconds, deaths)
        return True

    def _unlink(self, number: int) -> bool:
        with self._lock:
            link = self._links.pop(number)
        has_reported_exit = link.join()
        self.progress.forget(number)
        return has_reported_exit

    def terminate(self) -> None:
        """Shut down gracefully: each process settles its records in flight, commits and leaves. It has its own time
        limit for that."""
        for process in self.started:
            if process.is_alive():
                process.terminate()
        for process in self.started:
            process.join()
        for number in list(self._links):
            self._unlink(number)
        self.progress.close(self._clock.monotonic())

    def kill(self) -> None:
        for process in self.started:
            if process.pid is not None:
                process.kill()


def _has_failed(process: SpawnProcess, ended_first: bool) -> bool:
    """A member that was terminated before it installed its signal handlers had not begun: that is no failure."""
    return bool(process.exitcode) and (ended_first or process.exitcode != -signal.SIGTERM)


def _exit_text(code: int, *, by_itself: bool) -> str:
    if code < 0:
        return f"was killed by signal {-code}"
    why = "see its log" if by_itself else "something in it ended the process (os._exit, or exit() of a library)"
    return f"exited with code {code}; {why}"
