"""Pairs of times: each process writes its pairs into a file of its own, and one process adds them up.

Thread: `Notes.add` any, a thread of its own writes; the rest is pure except for reading files.

Recording a pair is part of the measurement, so it does as little as possible. All times are wall clock times in
nanoseconds: the only clock that the processes share.
"""

from __future__ import annotations

import os
import threading
import time
from array import array
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

WRITE_SECONDS: Final = 0.1
BEHIND: Final = 0.95  # a system that handles a smaller share of the sent records falls behind
_PAIR_BYTES: Final = 16
_STAMP_BYTES: Final = 8
_MILLISECOND: Final = 1e6

Pairs = npt.NDArray[np.int64]  # two columns


# --- what a record carries -------------------------------------------------------------------------------------------


def stamped(sent: int, size: int) -> bytes:
    """A value of `size` bytes that starts with its send time."""
    return sent.to_bytes(_STAMP_BYTES, "big").ljust(size, b"x")


def stamp_of(value: bytes) -> int:
    return int.from_bytes(value[:_STAMP_BYTES], "big")


# --- files -----------------------------------------------------------------------------------------------------------


class Notes:
    """The pairs of one process."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / str(os.getpid())
        self._kept: list[int] = []

    def add(self, first: int, second: int) -> None:
        self._kept.extend((first, second))  # one call: no thread sees half of a pair

    def write(self) -> None:
        """The pairs since the last call. One thread at a time."""
        count = len(self._kept)
        taken = array("q", self._kept[:count])
        del self._kept[:count]
        with self._path.open("ab") as file:
            file.write(taken.tobytes())

    def write_regularly(self) -> None:
        def run() -> None:
            while True:
                time.sleep(WRITE_SECONDS)
                if self._kept:
                    self.write()

        threading.Thread(target=run, name="notes", daemon=True).start()


class Written:
    """How many pairs all processes have written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def handled(self) -> int:
        return sum(path.stat().st_size for path in self._directory.iterdir()) // _PAIR_BYTES


def read_pairs(directory: Path) -> Pairs:
    """The pairs of all files; an incomplete pair does not count yet."""
    found = [np.zeros((0, 2), np.int64)]
    for path in directory.iterdir():
        content = path.read_bytes()
        whole = len(content) // _PAIR_BYTES * _PAIR_BYTES
        found.append(np.frombuffer(content[:whole], np.int64).reshape(-1, 2))
    return np.concatenate(found)


# --- what they tell --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stretch:
    """From one moment until just before another."""

    begin: int
    end: int

    def holds(self, times: Pairs) -> npt.NDArray[np.bool_]:
        return np.asarray((times >= self.begin) & (times < self.end))


@dataclass(frozen=True, slots=True)
class Latencies:
    """Milliseconds. `sent` and `handled` count records sent and handled in the period; `missing` are records sent in it
    that were not handled by the last check."""

    p50: float
    p99: float
    longest: float
    sent: int
    handled: int
    missing: int

    @property
    def share(self) -> float:
        return self.handled / self.sent

    @property
    def is_behind(self) -> bool:
        return self.share < BEHIND


def latencies(handled: Pairs, sent: Pairs, stretch: Stretch, now: int) -> Latencies:
    """`handled` are pairs of send and end times, `sent` the send times. The first end of a record counts; a record that
    is not handled by `now` has taken at least so long."""
    asked = sent[stretch.holds(sent)]
    if not asked.size:
        raise RuntimeError("nothing was sent in the measured period")
    by_end = handled[np.argsort(handled[:, 1], kind="stable")]
    known, firsts = np.unique(by_end[:, 0], return_index=True)
    ends = by_end[firsts, 1]
    inside = np.isin(known, asked)
    missing = np.setdiff1d(asked, known)
    took = np.concatenate([ends[inside] - known[inside], now - missing]) / _MILLISECOND
    p50, p99 = np.percentile(took, [50, 99], method="inverted_cdf")
    ended = int(stretch.holds(ends).sum())
    return Latencies(float(p50), float(p99), float(took.max()), asked.size, ended, missing.size)
