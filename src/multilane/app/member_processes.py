"""Runs several processes of one application on this machine, each a member of its groups: Python uses one core in each.

Thread: application (the main thread: signals).

Owns the processes. A signal shuts them down gracefully. A killed process is restarted after a back-off that grows with
each death, and the others go on. If one exits by itself, the others are shut down and its failure is raised. Exit codes
cannot tell the two apart, because a library may end the process with any code: a member reports its exit on a pipe. If
this process disappears, for any reason, they shut down by themselves.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Final

from multilane.app.app import App
from multilane.app.member_checks import check_members_differ
from multilane.app.restarts import Restarts
from multilane.app.signals import signals_stop
from multilane.app.targets import find_app
from multilane.clock import Clock, SystemClock
from multilane.config.app.advising import advised_elsewhere
from multilane.config.app.loading import MEMBER_VARIABLE
from multilane.errors import MemberFailed, MultilaneError
from multilane.logs import logger

log = logger(__name__)

_EXIT_REPORT: Final = b"exit"  # of a member that ends by itself and logged why, whatever its exit code
_MOST_RESTARTS: Final = 8  # of a killed member that then exits by itself: about three minutes


def run_member_processes(target: str, members: int, log_level: str) -> None:
    """Run until SIGTERM, SIGINT, or the exit of a member that a restart does not repair."""
    check_members_differ(find_app(target))  # report a problem once, before any process starts
    stop_receiver, stop_sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
    processes = MemberProcesses(target, members, log_level, SystemClock())
    with signals_stop(lambda: stop_sender.send(None)):
        try:
            ended = processes.supervise(stop_receiver)
            processes.terminate()
        except BaseException:  # a second Ctrl-C
            processes.kill()
            raise
    failed = next((one for one in processes.started if _has_failed(one, one is ended)), None)
    if failed is not None:
        text = _exit_text(failed.exitcode or 0, by_itself=True)
        raise MemberFailed(f"{failed.name} {text}; the other members were shut down")


class MemberProcesses:
    """The processes, by number. A killed one is missing until its restart is due."""

    def __init__(self, target: str, members: int, log_level: str, clock: Clock) -> None:
        self._target = target
        self._members = members
        self._log_level = log_level
        self._clock = clock
        self._processes: dict[int, SpawnProcess] = {}
        self._exit_receivers: dict[int, Connection] = {}
        self._restarts = [Restarts() for _ in range(members)]
        self._due: dict[int, float] = dict.fromkeys(range(members), clock.monotonic())

    @property
    def started(self) -> list[SpawnProcess]:
        return list(self._processes.values())

    def supervise(self, stop: Connection) -> SpawnProcess | None:
        """Start processes when they are due, until a stop is received or one ends for good. Returns that one."""
        while True:
            self._start_due()
            numbers = {process.sentinel: number for number, process in self._processes.items()}
            wait_for: list[Connection | int] = [stop, *numbers]
            ready = wait(wait_for, self._until_due())
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
            self._exit_receivers[number], exit_sender = spawn.Pipe(duplex=False)
            # Not daemons: daemons may not have child processes, and `processes: n` needs some.
            process = spawn.Process(
                target=_member,
                args=(self._target, number, self._log_level, exit_sender),
                name=f"member {number + 1} of {self._members}",
            )
            self._processes[number] = process
            self._restarts[number].start(now)
            process.start()
            exit_sender.close()  # so that the receiver reads the end of the pipe when the member has ended

    def _until_due(self) -> float | None:
        return max(0.0, min(self._due.values()) - self._clock.monotonic()) if self._due else None

    def _restart(self, number: int) -> bool:
        """Schedule a restart if the member was killed. Returns False if it exited by itself: it logged why and would
        exit again. But shortly after a kill the group may reject it until the session of its predecessor times out, so
        then it is restarted too."""
        process = self._processes[number]
        process.join()
        code, now = process.exitcode or 0, self._clock.monotonic()
        by_itself = _has_reported_exit(self._exit_receivers.pop(number))
        if by_itself and not (code and 0 < self._restarts[number].deaths_in_a_row(now) < _MOST_RESTARTS):
            return False
        seconds = self._restarts[number].wait_after_death(now)
        self._due[number] = now + seconds
        del self._processes[number]
        deaths = self._restarts[number].deaths
        text = "%s %s. Restarting it in %g s (death %d in a row)"
        log.error(text, process.name, _exit_text(code, by_itself=by_itself), seconds, deaths)
        return True

    def terminate(self) -> None:
        """Shut down gracefully: each process settles its records in flight, commits and leaves. It has its own time
        limit for that."""
        for process in self.started:
            if process.is_alive():
                process.terminate()
        for process in self.started:
            process.join()

    def kill(self) -> None:
        for process in self.started:
            if process.pid is not None:
                process.kill()


def _has_failed(process: SpawnProcess, ended_first: bool) -> bool:
    """A member that was terminated before it installed its signal handlers had not begun: that is no failure."""
    return bool(process.exitcode) and (ended_first or process.exitcode != -signal.SIGTERM)


def _has_reported_exit(receiver: Connection) -> bool:
    with receiver:
        try:
            return receiver.poll() and receiver.recv_bytes() == _EXIT_REPORT
        except (EOFError, OSError):  # the process has ended without a report
            return False


def _exit_text(code: int, *, by_itself: bool) -> str:
    if code < 0:
        return f"was killed by signal {-code}"
    why = "see its log" if by_itself else "something in it ended the process (os._exit, or exit() of a library)"
    return f"exited with code {code}; {why}"


# --- in a process of its own -----------------------------------------------------------------------------------------


def _member(target: str, number: int, log_level: str, exit_sender: Connection) -> None:
    os.environ[MEMBER_VARIABLE] = str(number)
    os.setsid()  # the parent forwards Ctrl-C: a second signal would end this process at once
    log_format = f"%(asctime)s %(levelname)s %(name)s [{multiprocessing.current_process().name}]: %(message)s"
    logging.basicConfig(level=log_level, format=log_format)
    try:
        with advised_elsewhere():  # by the parent
            app = find_app(target)
        threading.Thread(target=_end_with_parent, args=(app,), name="multilane-parent", daemon=True).start()
        app.run()
    except MultilaneError as error:
        for line in str(error).splitlines():  # without a traceback; each problem of a configuration has its own line
            log.error("%s", line)  # noqa: TRY400
        sys.exit(1)
    finally:
        with suppress(OSError):  # the parent is gone
            exit_sender.send_bytes(_EXIT_REPORT)


def _end_with_parent(app: App) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        log.warning("parent process is gone: shutting down")
        app.stop()
