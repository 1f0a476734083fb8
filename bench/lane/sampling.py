"""Samples one child: its rate over a steady period or a whole log, its CPU and its memory.

Thread: application.

A child counts and reports; its resources are read from /proc at each report. Nothing before its first record or during
the warm-up counts. The child is always ended afterwards.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

from bench.group.process import resident_bytes
from bench.lane.order import Drained, Tick, told

ROOT: Final = Path(__file__).resolve().parents[2]
_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 15.0
_LINES_SHOWN: Final = 30
_TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Sample:
    """`at` is the child's clock when it counted; `seen` is our clock when its resources were read: a child that is
    short of CPU reports late."""

    at: float
    handled: int
    cpu_seconds: float
    resident: Mapping[str, int]  # bytes, by role
    seen: float

    @property
    def resident_bytes(self) -> int:
        return sum(self.resident.values())


@dataclass(frozen=True, slots=True)
class Figures:
    """`cpu` in cores; memory is the peak of resident memory during the measurement, of all processes together and per
    role."""

    rate: float
    seconds: float
    cpu: float
    peak_rss_bytes: int
    rss_by_role: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """`records` is the size of the log: a period that reaches its end is not steady."""

    warm: float
    seconds: float
    records: int | None = None

    @property
    def patience(self) -> float:
        return _START_SECONDS + 3 * (self.warm + self.seconds)


@dataclass(slots=True)
class Window:
    """Takes samples until the steady period is complete. The time starts with the first handled record."""

    span: Span
    _began: float | None = None
    _samples: list[Sample] = field(default_factory=list)

    def add(self, sample: Sample) -> bool:
        """Whether there are enough samples."""
        if self._began is None:
            if sample.handled:
                self._began = sample.at
            return False
        if sample.at < self._began + self.span.warm:
            return False
        self._samples.append(sample)
        return sample.at >= self._samples[0].at + self.span.seconds

    @property
    def is_open(self) -> bool:
        """Whether the steady period has begun."""
        return bool(self._samples)

    def figures(self) -> Figures:
        first, last = self._samples[0], self._samples[-1]
        if self.span.records is not None and last.handled >= self.span.records:
            raise RuntimeError(
                f"the log of {self.span.records:,} records ran dry: its consumer was faster than expected"
            )
        return figures_between(self._samples, last.handled - first.handled, last.at - first.at)


def figures_between(samples: Sequence[Sample], records: int, seconds: float) -> Figures:
    took = samples[-1].seen - samples[0].seen
    cpu = (samples[-1].cpu_seconds - samples[0].cpu_seconds) / took if took else 0.0
    roles = {role for sample in samples for role in sample.resident}
    peaks = {role: max(sample.resident.get(role, 0) for sample in samples) for role in roles}
    return Figures(records / seconds, seconds, cpu, max(sample.resident_bytes for sample in samples), peaks)


def measure_steady(command: Sequence[str], span: Span) -> Figures:
    window = Window(span)
    with child(command, span.patience) as (process, events):
        for event in events:
            sample = sample_of(process.pid, event) if isinstance(event, Tick) else None
            if sample is not None and window.add(sample):
                return window.figures()
    raise AssertionError("a child that ends was reported")


def measure_drain(command: Sequence[str], span: Span, records: int) -> Figures:
    samples: list[Sample] = []
    with child(command, span.patience) as (process, events):
        for event in events:
            if isinstance(event, Drained):
                return figures_between(samples, records, event.seconds)
            sample = sample_of(process.pid, event) if event.handled else None
            if sample is not None:
                samples.append(sample)
    raise AssertionError("a child that ends was reported")


def sample_of(pid: int, tick: Tick) -> Sample | None:
    """None if the process is gone already: its last report is read with the end of its output."""
    try:
        family = [one for one in tree(pid) if not is_zombie(one)]
        resident: Counter[str] = Counter()
        for one in family:
            resident[role_of(one, pid)] += resident_bytes(one)
        return Sample(tick.at, tick.handled, sum(map(cpu_seconds, family)), resident, time.monotonic())
    except (ValueError, FileNotFoundError, ProcessLookupError):
        return None


def tree(pid: int) -> Iterator[int]:
    """The process and all its descendants."""
    yield pid
    for children in Path("/proc", str(pid), "task").glob("*/children"):
        for below in children.read_text().split():
            yield from tree(int(below))


def is_zombie(pid: int) -> bool:
    """A zombie: it has ended and its parent has not waited for it, so it uses no memory."""
    return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0] == "Z"


def role_of(pid: int, first: int) -> str:
    if pid == first:
        return "driver"
    return "jvm" if Path("/proc", str(pid), "comm").read_text().strip() == "java" else "workers"


def cpu_seconds(pid: int) -> float:
    return cpu_of(Path("/proc", str(pid), "stat").read_text())


def cpu_of(stat: str) -> float:
    """User and system time of all threads; the name before them may contain anything, parentheses too."""
    cells = stat.rpartition(")")[2].split()
    return (int(cells[11]) + int(cells[12])) / _TICKS


# --- the process -----------------------------------------------------------------------------------------------------


@contextmanager
def child(command: Sequence[str], patience: float) -> Iterator[tuple[subprocess.Popen[str], Iterator[Tick | Drained]]]:
    """The process and its reports. It ends with the block; if it ends earlier, its last output is raised."""
    with tempfile.TemporaryFile("w+") as words:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=words, text=True, cwd=ROOT
        )
        # Nothing else would wake the reader of a child that is silent.
        watchdog = threading.Timer(patience, process.kill)
        watchdog.start()
        try:
            assert process.stdout is not None  # noqa: S101 (narrows the type: stdout is PIPE)
            yield process, _events(process, process.stdout, words)
        finally:
            watchdog.cancel()
            end(process)


def _events(process: subprocess.Popen[str], stdout: IO[str], words: IO[str]) -> Iterator[Tick | Drained]:
    yield from told(iter(stdout))
    code = process.wait()
    words.seek(0)
    last = "".join(words.readlines()[-_LINES_SHOWN:])
    raise RuntimeError(f"{process.args!r} ended too early (exit {code}):\n{last}")


def end(process: subprocess.Popen[str]) -> None:
    """Terminates, then kills."""
    process.terminate()
    try:
        # A process that is ending may still write output, and must not wait for a reader.
        process.communicate(timeout=_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
