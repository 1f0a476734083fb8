"""Runs the demo's application as a person would, with `multilane run`, and looks at its group until all is settled.

Thread: application.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from multilane.cli.demo_shop import GROUP, MODULE, RETRY, TOPIC
from multilane.client.admin.admin import Admin
from multilane.clock import Clock
from multilane.commit import completion_map
from multilane.errors import MultilaneError
from multilane.types import TopicPartition

_LOOK: Final = 0.25
_PATIENCE: Final = 300.0
_LAST_WORDS: Final = 2_000


@dataclass(frozen=True, slots=True)
class DemoStanding:
    """How far the group is."""

    settled: int  # records of the topic
    waiting: int  # in topic and retry topic together


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Callable[[], None]]:
    """The application on Spark; the function it gives raises when that has ended. Ends it in order."""
    log = folder / "run.log"
    command = [sys.executable, "-m", "multilane", "run", f"{MODULE}:app", "--log-level", "warning", *options]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)  # noqa: S603 - ours

    def check() -> None:
        if process.poll() is not None:
            raise MultilaneError(f"the application has ended: {log.read_text(errors='replace')[-_LAST_WORDS:]}")

    try:
        yield check
        check()
        process.terminate()
        if process.wait(_PATIENCE) != 0:
            check()
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def settle_all(admin: Admin, check: Callable[[], None], tell: Callable[[int], object], clock: Clock) -> float:
    """Seconds from the first records that were settled to the last. `tell` hears how many are."""
    begin, deadline = None, clock.monotonic() + _PATIENCE
    while clock.monotonic() < deadline:
        check()
        standing = _standing(admin)
        now = clock.monotonic()
        if begin is None and standing.settled:
            begin = now
        tell(standing.settled)
        if not standing.waiting and begin is not None:
            return now - begin
        threading.Event().wait(_LOOK)
    raise MultilaneError(f"the orders were not settled within {_PATIENCE:.0f} s")


def _standing(admin: Admin) -> DemoStanding:
    """By what is committed: that is what anybody can see of a group."""
    described = admin.topics([TOPIC, RETRY])
    partitions = [TopicPartition(t, one.number) for t, found in described.items() for one in found.partitions]
    ends = {p: 0 if place is None else int(place.offset) for p, place in admin.offsets(partitions, "latest").items()}
    settled = waiting = 0
    try:
        committed = admin.group_offsets(GROUP)
    except MultilaneError:
        committed = {}  # the group is not there yet
    for partition, end in ends.items():
        place = committed.get(partition)
        runs = () if place is None else completion_map.decode(place.metadata, place.offset)
        done = (0 if place is None else int(place.offset)) + sum(last - first + 1 for first, last in runs)
        settled += done if partition.topic == TOPIC else 0
        waiting += end - done
    return DemoStanding(settled, waiting)
