"""Several processes of one application on this machine, each a member of its groups: Python uses one core in each.

Thread: application (the main thread: signals).

Owns the processes. A signal ends them in order. One that is killed is started again, after a while that grows with each
death; the others go on. When one ends by itself, having said why, the others are ended in order too and its failure is
raised. Exit codes do not tell the two apart, because a library may end a process with any: so a member says goodbye.
When this process is gone, whatever took it, they end in order by themselves.
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

_GOODBYE: Final = b"goodbye"  # of a member that ended by itself, whatever its exit code
_TRIES: Final = 8  # of a member that was killed, to start again: some three minutes


def run_siblings(target: str, members: int, log_level: str) -> None:
    """Until SIGTERM, SIGINT, or the end of one of them that starting it again does not mend."""
    check_members_differ(find_app(target))  # what is wrong with it is said once, and nothing has begun
    ear, mouth = multiprocessing.get_context("spawn").Pipe(duplex=False)
    family = Siblings(target, members, log_level, SystemClock())
    with signals_stop(lambda: mouth.send(None)):
        try:
            early = family.attend(ear)
            family.end()
        except BaseException:  # a second Ctrl-C
            family.kill()
            raise
    failed = next((one for one in family.living if _has_failed(one, one is early)), None)
    if failed is not None:
        told = _told(failed.exitcode or 0, has_ended=True)
        raise MemberFailed(f"{failed.name} {told}; the other members were stopped in order")


class Siblings:
    """The processes, by number. One that was killed is missing until it is due to start again."""

    def __init__(self, target: str, members: int, log_level: str, clock: Clock) -> None:
        self._target = target
        self._members = members
        self._log_level = log_level
        self._clock = clock
        self._processes: dict[int, SpawnProcess] = {}
        self._ears: dict[int, Connection] = {}  # for their goodbyes
        self._restarts = [Restarts() for _ in range(members)]
        self._due: dict[int, float] = dict.fromkeys(range(members), clock.monotonic())

    @property
    def living(self) -> list[SpawnProcess]:
        return list(self._processes.values())

    def attend(self, ear: Connection) -> SpawnProcess | None:
        """Start those that are due, until we are told to end or one ends for good, which is given."""
        while True:
            self._start_due()
            numbers = {process.sentinel: number for number, process in self._processes.items()}
            wait_for: list[Connection | int] = [ear, *numbers]
            ready = wait(wait_for, self._until_due())
            if ear in ready:
                return None
            for number in [numbers[one] for one in ready if isinstance(one, int)]:
                if not self._is_started_again(number):
                    return self._processes[number]

    def _start_due(self) -> None:
        now = self._clock.monotonic()
        for number in [number for number, due in self._due.items() if due <= now]:
            del self._due[number]
            spawn = multiprocessing.get_context("spawn")
            self._ears[number], mouth = spawn.Pipe(duplex=False)
            # Not named daemons: those may not have processes of their own, and `processes: n` needs some.
            process = spawn.Process(
                target=_member,
                args=(self._target, number, self._log_level, mouth),
                name=f"member {number + 1} of {self._members}",
            )
            self._processes[number] = process
            self._restarts[number].start(now)
            process.start()
            mouth.close()  # ours: the end of the member's is the end of what it says

    def _until_due(self) -> float | None:
        return max(0.0, min(self._due.values()) - self._clock.monotonic()) if self._due else None

    def _is_started_again(self, number: int) -> bool:
        """One that was killed. One that ended by itself said why, and would do so again; unless it was killed a moment
        ago: its group may take it for the one before, until that one's session is over."""
        process = self._processes[number]
        process.join()
        code, now = process.exitcode or 0, self._clock.monotonic()
        has_ended = _says_goodbye(self._ears.pop(number))
        if has_ended and not (code and 0 < self._restarts[number].deaths_in_a_row(now) < _TRIES):
            return False
        seconds = self._restarts[number].wait_after_death(now)
        self._due[number] = now + seconds
        del self._processes[number]
        deaths = self._restarts[number].deaths
        told = "%s %s. Restarting it in %g s (death %d in a row)"
        log.error(told, process.name, _told(code, has_ended=has_ended), seconds, deaths)
        return True

    def end(self) -> None:
        """In order: each settles what it has in work, commits and leaves. It has its own time limit for that."""
        for process in self.living:
            if process.is_alive():
                process.terminate()
        for process in self.living:
            process.join()

    def kill(self) -> None:
        for process in self.living:
            if process.pid is not None:
                process.kill()


def _has_failed(sibling: SpawnProcess, ended_early: bool) -> bool:
    """One that we ended before it could listen to signals had not begun."""
    return bool(sibling.exitcode) and (ended_early or sibling.exitcode != -signal.SIGTERM)


def _says_goodbye(ear: Connection) -> bool:
    with ear:
        try:
            return ear.poll() and ear.recv_bytes() == _GOODBYE
        except (EOFError, OSError):  # it is gone without a word
            return False


def _told(code: int, *, has_ended: bool) -> str:
    if code < 0:
        return f"was killed by signal {-code}"
    why = "its log says why" if has_ended else "something in it ended the process (os._exit, or exit() of a library)"
    return f"exited with code {code}; {why}"


# --- in a process of its own -----------------------------------------------------------------------------------------


def _member(target: str, number: int, log_level: str, mouth: Connection) -> None:
    os.environ[MEMBER_VARIABLE] = str(number)
    os.setsid()  # Ctrl-C is for the parent, who passes it on: two signals would end us at once
    form = f"%(asctime)s %(levelname)s %(name)s [{multiprocessing.current_process().name}]: %(message)s"
    logging.basicConfig(level=log_level, format=form)
    try:
        with advised_elsewhere():  # by the parent
            app = find_app(target)
        threading.Thread(target=_end_with_parent, args=(app,), name="multilane-parent", daemon=True).start()
        app.run()
    except MultilaneError as error:
        for line in str(error).splitlines():  # the sentences are enough; problems of a configuration have a line each
            log.error("%s", line)  # noqa: TRY400
        sys.exit(1)
    finally:
        with suppress(OSError):  # the parent is gone
            mouth.send_bytes(_GOODBYE)


def _end_with_parent(app: App) -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        log.warning("the process that started this one is gone: ending")
        app.stop()
