"""The begun table of this process, and what the tables of dead processes contain about the partitions assigned to it.

Thread: loop; reads files on another.

A composition root. Owns the table, and is shared by all consumers of an application, because a crash ends all of them.
Never stops the application: without a directory it logs that a record that crashes its process will not be found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

from multilane.clock import Clock
from multilane.lanes.assignment import Start
from multilane.lanes.begun import BegunTable, LaneMarks, Name
from multilane.lanes.crashes import Crash, OpenCall, Suspicion, suspicion
from multilane.lanes.dead_tables import crashes_in
from multilane.lanes.intake import Intake
from multilane.lanes.watch import SuspectIsolation, Watch
from multilane.logs import logger
from multilane.user_cache import user_state

log = logger(__name__)


class CrashWatch:
    """Make it inside the running loop."""

    def __init__(self, clock: Clock, directory: Path | None = None) -> None:
        self._clock = clock
        self._directory = directory or user_state() / "begun"
        self._isolation = SuspectIsolation(clock)
        self._table: BegunTable | None = None
        self._users = 0

    def open(self) -> None:
        """Called by each consumer."""
        self._users += 1
        if self._table is None and self._users == 1:
            try:
                self._table = BegunTable(self._directory)
            except OSError as error:
                log.warning(
                    "cannot write a begun table to %s (%s): a record that crashes its process will not be found. "
                    "Set MULTILANE_STATE to a directory that only this user can write to",
                    self._directory,
                    error,
                )

    def close(self) -> None:
        self._users -= 1
        if not self._users and self._table is not None:
            self._table.close()
            self._table = None

    async def watch(
        self, cluster: str, group: str, limit: int, intakes: Mapping[Intake, Start], trigger: str = ""
    ) -> Watch:
        """The watch for the processor of these intakes. A record that was in flight at `limit` deaths is not handled
        again. `trigger`: see `Name`."""
        if self._table is None:
            return Watch()
        names = {
            Name(cluster, group, *intake.partition, _log_of(start), trigger): intake
            for intake, start in intakes.items()
        }

        def is_settled(call: OpenCall) -> bool:
            if any(name.is_of_another_log(call.name) for name in names):
                return True  # its record no longer exists
            intake = next((intake for name, intake in names.items() if name.may_be(call.name)), None)
            return intake is not None and _is_within(call, intakes[intake])

        crashes = await asyncio.to_thread(crashes_in, self._directory, is_settled, self._clock.wall())
        for name, intake in names.items():
            self._note(name, intake, suspicion(crashes, name, limit), crashes)
        numbers = {name.topic: self._table.number_of(name) for name in names}
        return Watch(self._isolation, LaneMarks(self._table, numbers), {name.topic: name for name in names})

    def _note(self, name: Name, intake: Intake, found: Suspicion, crashes: list[Crash]) -> None:
        if not found.suspects and not found.convicted:
            return
        count = sum(last - first + 1 for first, last in found.suspects)
        log.warning(
            "%s: up to %d records were in flight at each death of a process (%d deaths): handling them one at a time",
            intake.partition,
            count + len(found.convicted),
            sum(any(name.may_be(call.name) for call in crash.calls) for crash in crashes),
        )
        self._isolation.begin(name, found, intake.frontier)

    def end(self, watch: Watch, intakes: Iterable[Intake]) -> None:
        """The processor of these intakes has ended."""
        for intake in intakes:
            name = watch.names.get(intake.partition.topic)
            if name is not None:
                self._isolation.end(name, intake.frontier)


def _log_of(start: Start) -> str:
    return "" if start.topic_id is None else start.topic_id.hex


def _is_within(call: OpenCall, start: Start) -> bool:
    """Whether the partition starts after the records of this call."""
    return call.last < start.offset or any(first <= call.first and call.last <= last for first, last in start.runs)
