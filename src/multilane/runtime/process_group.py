"""One consumer of the configuration, run in this process as a member of its group.

Thread: loop.

A composition root: an outfit, a consumer, and the pump between them. Owns all of it, from `run` to its end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from multilane.clock import Clock
from multilane.hooks import NO_OBSERVER, Observer
from multilane.lanes.membership import Timing
from multilane.lanes.pump import Pump
from multilane.lanes.steering import Steering
from multilane.lanes.team import Team
from multilane.logs import logger
from multilane.runtime.outfit import Outfit
from multilane.runtime.starting import member_of, opened

log = logger(__name__)


class ProcessGroup:
    """Make it inside the running loop; `run` until `stop`."""

    def __init__(self, outfit: Outfit, clock: Clock, observer: Observer = NO_OBSERVER) -> None:
        self.config = outfit.config
        self._outfit = outfit
        self._clock = clock
        self._observer = observer
        self._pump: Pump | None = None
        self._stopping = asyncio.Event()

    @property
    def teams(self) -> Sequence[Team]:
        return () if self._pump is None else self._pump.teams

    @property
    def settled(self) -> int:
        """How many records so far."""
        return 0 if self._pump is None else self._pump.settled

    async def run(self) -> None:
        config, outfit = self.config, self._outfit
        try:
            if not await opened(outfit, self._stopping):
                return
            consumer = await member_of(outfit, self._clock, self._observer, self._stopping)
            if consumer is None:
                return
            timing = Timing(config.commit_interval, config.rebalance_timeout / 2)
            self._pump = Pump(consumer, outfit.topics, outfit.build, timing, self._clock, outfit.accounts_are_kept)
            self._pump.tell(outfit.belong_to(consumer))
            if self._stopping.is_set():
                self._pump.stop()
            log.info("consumer %s: group %s reads %s", config.name, config.group_id, ", ".join(outfit.topics.names))
            await self._pump.run()
        finally:
            await outfit.close()

    def look_up(self) -> None:
        """The process goes on after a stop: nothing begins before the member's standing was looked at."""
        self._outfit.fence.suspect()

    def steer(self, steering: Steering) -> None:
        self._outfit.steer(steering, self.teams)

    def stop(self) -> None:
        """Settle what is in work, commit, and leave the group."""
        self._stopping.set()
        if self._pump is not None:
            self._pump.stop()
