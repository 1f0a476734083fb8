"""Runs the demo's app as a person would, with `multilane run`, and polls its group until all is settled.

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

_POLL_EVERY: Final = 0.25
_PATIENCE: Final = 300.0
_LOG_TAIL: Final = 2_000


@dataclass(frozen=True, slots=True)
class DemoProgress:
    """The progress of the group."""

    settled: int  # records of the topic
    waiting: int  # in the topic and the retry topic together


@contextmanager
def running(folder: Path, *options: str) -> Iterator[Callable[[], None]]:
    """Runs the app on Spark; the yielded function raises once it has exited. Shuts it down cleanly."""
    log = folder / "run.log"
    command = [sys.executable, "-m", "multilane", "run", f"{MODULE}:app", "--log-level", "warning", *options]
    with log.open("wb") as out:
        process = subprocess.Popen(command, cwd=folder, stdout=out, stderr=out)  # noqa: S603 - ours

    def check() -> None:
        if process.poll() is not None:
            raise MultilaneError(f"the app has exited: {log.read_text(errors='replace')[-_LOG_TAIL:]}")

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


def settle_all(admin: Admin, check: Callable[[], None], on_settled: Callable[[int], object], clock: Clock) -> float:
    """Seconds from the first settled records to the last. Calls `on_settled` with their number."""
    begin, deadline = None, clock.monotonic() + _PATIENCE
    while clock.monotonic() < deadline:
        check()
        progress = _progress(admin)
        now = clock.monotonic()
        if begin is None and progress.settled:
            begin = now
        on_settled(progress.settled)
        if not progress.waiting and begin is not None:
            return now - begin
        threading.Event().wait(_POLL_EVERY)
    raise MultilaneError(f"the orders were not settled within {_PATIENCE:.0f} s")


def _progress(admin: Admin) -> DemoProgress:
    """Reads the committed offsets, which show the progress of a group from outside."""
    described = admin.topics([TOPIC, RETRY])
    partitions = [TopicPartition(t, one.number) for t, found in described.items() for one in found.partitions]
    ends = {p: 0 if end is None else int(end.offset) for p, end in admin.offsets(partitions, "latest").items()}
    settled = waiting = 0
    try:
        committed = admin.group_offsets(GROUP)
    except MultilaneError:
        committed = {}  # the group does not exist yet
    for partition, end in ends.items():
        commit = committed.get(partition)
        runs = () if commit is None else completion_map.decode(commit.metadata, commit.offset)
        done = (0 if commit is None else int(commit.offset)) + sum(last - first + 1 for first, last in runs)
        settled += done if partition.topic == TOPIC else 0
        waiting += end - done
    return DemoProgress(settled, waiting)
