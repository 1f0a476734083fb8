"""What an engine must offer to be judged; the process engine: `multilane.App` in processes of their own; and Spark with
both of its flows: a driver for each member, with a JVM and a worker below it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import ClassVar, Protocol

from conformance.cases import CROSSING, SHARING, Case
from multilane.clock import SystemClock
from multilane.testing.events import Event, Killed, Left
from multilane.testing.journal import JournalReader

_HERE = Path(__file__).parent
_PATIENCE = 60.0


class Member(Protocol):
    """One life of one member of all the groups of a run."""

    name: str

    def stop(self) -> None:
        """Ends it in order, and returns when it has ended."""

    def kill(self) -> None:
        """SIGKILL, or whatever leaves it no time to do anything."""

    def news(self) -> dict[str, list[Event]]:
        """What it told since the last time, by the name of the case; and how it ended, if it has."""


class Engine(Protocol):
    keys: ClassVar[dict[str, str]]  # that all cases have here

    def start(self, name: str, bootstrap: str, cases: Sequence[Case]) -> Member: ...


class ProcessMember:
    """`multilane.App` in a Python process. Its end is told by whoever ended it."""

    main = _HERE / "member_main.py"
    arguments: tuple[str, ...] = ()

    def __init__(self, name: str, bootstrap: str, cases: Sequence[Case], directory: Path) -> None:
        self.name = name
        self._cases = cases
        self._clock = SystemClock()
        self._endings: list[Event] = []
        journal = directory / f"{name}.journal"
        self._reader = JournalReader(journal)
        self.log = directory / f"{name}.log"
        plan = directory / f"{name}.json"
        plan.write_text(json.dumps({"bootstrap": bootstrap, "cases": [asdict(case) for case in cases]}))
        with self.log.open("wb") as log:
            command = [sys.executable, os.fspath(self.main), name, os.fspath(plan), os.fspath(journal), *self.arguments]
            self._process = subprocess.Popen(command, stdout=log, stderr=log)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def cpu_seconds(self) -> float:
        """What the process has used so far."""
        return _cpu_seconds(self.pid)

    def terminate(self) -> None:
        """SIGTERM, without waiting for what comes of it; when it is heard, not while a process is still beginning."""
        deadline = self._clock.monotonic() + _PATIENCE
        while self.running and not _catches(self.pid, signal.SIGTERM):
            assert self._clock.monotonic() < deadline, f"{self.name} is not up\n{self.tail()}"
            threading.Event().wait(0.01)
        self._process.send_signal(signal.SIGTERM)

    def wait_ended(self) -> None:
        assert self._process.wait(_PATIENCE) == 0, f"{self.name} ended with {self._process.returncode}:\n{self.tail()}"
        self._endings.append(Left(self._clock.monotonic(), self.name))

    def stop(self) -> None:
        self.terminate()
        self.wait_ended()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(_PATIENCE)
        self._endings.append(Killed(self._clock.monotonic(), self.name))

    def freeze(self) -> None:
        """SIGSTOP: it hangs as a whole, and its group does without it."""
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def news(self) -> dict[str, list[Event]]:
        told = self._reader.news()
        endings, self._endings = self._endings, []
        if endings:
            for case in self._cases:
                told.setdefault(case.name, []).extend(endings)
        return told

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def put_away(self) -> None:
        """At the end of a test, whatever happened in it."""
        if self.running:
            self._process.kill()
            self._process.wait(_PATIENCE)


class SparkMember(ProcessMember):
    """A driver, its JVM, the daemon and the worker. All of them are one member."""

    main = _HERE / "spark_member_main.py"
    arguments = ("continuous",)

    def cpu_seconds(self) -> float:
        return sum(_cpu_seconds(pid) for pid in self._tree())

    def kill(self) -> None:
        for pid in self._tree():
            _signal(pid, signal.SIGKILL)
        self._process.wait(_PATIENCE)
        self._endings.append(Killed(self._clock.monotonic(), self.name))

    def freeze(self) -> None:
        for pid in self._tree():
            _signal(pid, signal.SIGSTOP)

    def thaw(self) -> None:
        for pid in self._tree():
            _signal(pid, signal.SIGCONT)

    def put_away(self) -> None:
        if self.running:
            for pid in self._tree():
                _signal(pid, signal.SIGKILL)
            self._process.wait(_PATIENCE)

    # --- one of them alone -------------------------------------------------------------------------------------------

    def kill_worker(self) -> None:
        """The process that is the member of the group. Spark starts another one, a life of the same name."""
        self._kill_one(self._tree()[-1])

    def kill_jvm(self) -> None:
        """What is below it dies with it, and the driver ends."""
        self._kill_one(self._tree()[1])

    def kill_driver(self) -> None:
        self._kill_one(self.pid)

    def _kill_one(self, pid: int) -> None:
        tree = self._tree()
        doomed = tree[tree.index(pid) :]
        _signal(pid, signal.SIGKILL)
        self._wait_gone(doomed)

    def _wait_gone(self, doomed: Sequence[int]) -> None:
        deadline = self._clock.monotonic() + _PATIENCE
        while any(map(_is_alive, doomed)):
            assert self._clock.monotonic() < deadline, f"some of the processes {doomed} live on"
            threading.Event().wait(0.01)
        self._endings.append(Killed(self._clock.monotonic(), self.name))

    def wait_failed(self) -> int:
        return self._process.wait(_PATIENCE)

    def _tree(self) -> list[int]:
        """The driver and all below it, parents first."""
        found = [self.pid]
        for pid in found:
            for task in Path(f"/proc/{pid}/task").glob("*/children"):
                with suppress(FileNotFoundError, ProcessLookupError):  # a thread that has just ended
                    found += map(int, task.read_text().split())
        return found


class BatchesMember(SparkMember):
    """The member of the group is the coordinator, a process of the query's own; the worker has no group."""

    arguments = ("batches",)

    def kill_worker(self) -> None:
        """Spark starts its task again, in another one."""
        self._kill_logged("worker")

    def kill_jvm(self) -> None:
        self._kill_above_coordinator(self._tree()[1])

    def kill_driver(self) -> None:
        self._kill_above_coordinator(self.pid)

    def _kill_above_coordinator(self, pid: int) -> None:
        """Calls end with the worker; the coordinator lives a moment longer, and leaves its groups in order."""
        jvm, worker = self._tree()[1], self._logged("worker")
        _signal(pid, signal.SIGKILL)
        self._wait_gone([pid, jvm, worker])

    def kill_coordinator(self) -> None:
        """The query fails, and is started again with another one. Its worker abandons what it is at when it notices,
        and may be that of the next query, too."""
        noticed = self._noticed()
        _signal(pid := self._logged("coordinator"), signal.SIGKILL)
        deadline = self._clock.monotonic() + _PATIENCE
        while _is_alive(pid) or self._noticed() == noticed:
            assert self._clock.monotonic() < deadline, f"no worker has noticed it\n{self.tail()}"
            threading.Event().wait(0.01)
        threading.Event().wait(1.0)  # it says so a moment before its lanes end; another query begins a second later
        self._endings.append(Killed(self._clock.monotonic(), self.name))

    def _noticed(self) -> int:
        return self.log.read_text(errors="replace").count("the query's process is gone")

    def _kill_logged(self, who: str, *beside: str) -> None:
        pids = [self._logged(one) for one in (who, *beside)]
        _signal(pids[0], signal.SIGKILL)
        self._wait_gone(pids)

    def _logged(self, who: str) -> int:
        """The last of them. They are children of Spark's, and nothing but their own words tells them apart."""
        return int(re.findall(rf" {who} (\d+) ", self.log.read_text(errors="replace"))[-1])


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _catches(pid: int, number: signal.Signals) -> bool:
    caught = re.search(r"^SigCgt:\s*([0-9a-f]+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)


def _is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _signal(pid: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


class ProcessEngine:
    member = ProcessMember
    keys: ClassVar[dict[str, str]] = {}

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.members: list[ProcessMember] = []

    def start(self, name: str, bootstrap: str, cases: Sequence[Case]) -> ProcessMember:
        member = self.member(name, bootstrap, cases, self._directory)
        self.members.append(member)
        return member

    def put_away(self) -> None:
        for member in self.members:
            member.put_away()


class SparkEngine(ProcessEngine):
    member = SparkMember


class BatchesEngine(ProcessEngine):
    member = BatchesMember


class SharingEngine(ProcessEngine):
    """Every consumer shares its group with another trigger, which reads the same topic beside it."""

    keys = SHARING


class CrossingEngine(SharingEngine):
    """And with one that reads another topic."""

    keys = CROSSING


class SharingBatchesEngine(SharingEngine):
    member = BatchesMember


class CrossingBatchesEngine(CrossingEngine):
    member = BatchesMember


class EitherEngine(ProcessEngine):
    """The first letter of a member's name says which: process, Spark, or Spark in batches."""

    kinds: ClassVar = {"P": ProcessMember, "S": SparkMember, "B": BatchesMember}

    def start(self, name: str, bootstrap: str, cases: Sequence[Case]) -> ProcessMember:
        self.members.append(self.kinds[name[0]](name, bootstrap, cases, self._directory))
        return self.members[-1]


ENGINES = {
    "process": ProcessEngine,
    "sharing": SharingEngine,
    "spark": SparkEngine,
    "batches": BatchesEngine,
    "sharing-batches": SharingBatchesEngine,
    "crossing-batches": CrossingBatchesEngine,
}
