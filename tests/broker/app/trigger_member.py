"""An app of triggers that share a consumer. It reports what it does, and can kill itself at a step:
`trigger_member.py NAME CONFIGURATION JOURNAL [STEP TIMES]`. Runs until SIGTERM."""

from __future__ import annotations

import asyncio
import functools
import itertools
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from multilane import App, Record
from multilane.clock import SystemClock
from multilane.lanes.detached_reader import DetachedReader
from multilane.lanes.group_membership import GroupMembership
from multilane.lanes.shared_processor import SharedProcessor
from multilane.testing.events import Ended, RecordPlace, Started
from multilane.testing.journal import Journal

SECONDS = {"quick": 0.0, "slow": 0.008, "extra": 0.0}  # for a call
_CLOCK = SystemClock()


def made_app(member: str, configuration: str, journal: Journal, death: Death | None) -> App:
    app = App(configuration)
    calls = itertools.count()
    for trigger in app.config.consumers:

        @app.listener(trigger)
        async def handle(record: Record, trigger: str = trigger, seconds: float = SECONDS[trigger]) -> None:
            call, key = next(calls), (record.key or b"").decode()
            facts = (record.value or b"").decode(), key, RecordPlace(record.topic, record.partition, record.offset)
            journal.write(trigger, Started(_CLOCK.monotonic(), member, call, *facts))
            if seconds:
                await rest(seconds)
                while death is not None and not death.was_detached:  # however slow the machine is: it is slower
                    await rest(seconds)
            journal.write(trigger, Ended(_CLOCK.monotonic(), member, call, *facts))

    return app


async def rest(seconds: float) -> None:
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)


class Death:
    """SIGKILL at a step, when it is reached for the so-manieth time."""

    def __init__(self, step: str, times: int) -> None:
        self._step = step
        self._times = times
        self.was_detached = False
        self._has_returned = False
        _before(SharedProcessor, "_detach", lambda: self._reach("before it is detached"))
        _after(SharedProcessor, "_detach", self._note_detached)
        _after(DetachedReader, "_assign", lambda _: self.was_detached and self._reach("its reader has partitions"))
        _before(DetachedReader, "_deliver", lambda: self._reach("a block was read for it alone"))
        _after(DetachedReader, "_step", lambda _: self._reach("its reader has polled"))
        _after(SharedProcessor, "catches_up", lambda has_returned: has_returned and self._note_returned())
        _after(DetachedReader, "_give_back", lambda _: self._has_returned and self._reach("its reader has let go"))
        _after(
            SharedProcessor, "accept", lambda _: self._has_returned and self._reach("a shared block after its return")
        )
        _after(GroupMembership, "commit_when_due", self._note_committed)

    def _reach(self, step: str) -> None:
        self._times -= step == self._step
        if self._times == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def _note_detached(self, _: Any) -> None:
        self.was_detached = True
        self._reach("it is detached")

    def _note_returned(self) -> None:
        self._has_returned = True
        self._reach("it has caught up")

    def _note_committed(self, _: Any) -> None:
        if self._has_returned:
            self._reach("a commit after its return")
        elif self.was_detached:
            self._reach("a commit while it is detached")


def _before(owner: type, name: str, note: Callable[[], object]) -> None:
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        note()
        return plain(*args, **kwargs)

    setattr(owner, name, call)


def _after(owner: type, name: str, note: Callable[[Any], object]) -> None:
    """`note` gets the result."""
    plain = getattr(owner, name)

    @functools.wraps(plain)
    def call(*args: Any, **kwargs: Any) -> Any:
        result = plain(*args, **kwargs)
        note(result)
        return result

    @functools.wraps(plain)
    async def awaited(*args: Any, **kwargs: Any) -> Any:
        result = await plain(*args, **kwargs)
        note(result)
        return result

    setattr(owner, name, awaited if asyncio.iscoroutinefunction(plain) else call)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    name, configuration, path, *step = sys.argv[1:]
    death = Death(step[0], int(step[1])) if step else None
    made_app(name, configuration, Journal(Path(path)), death).run()
