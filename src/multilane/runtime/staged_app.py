"""An application in a Spark worker whose records come as rows of a DataFrame: the composition root there.

Thread: loop.

Outfits live as long as the worker process does, teams as long as a task. It joins no group, reads nothing and commits
nothing: what is done is known to Spark's checkpoint, if to anybody.
"""

from __future__ import annotations

from multilane.clock import SystemClock
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.errors import ConfigError, WrongRows
from multilane.lanes.haul import Haul
from multilane.lanes.holding import Starts
from multilane.lanes.team import Team
from multilane.lanes.verdicts import Verdicts
from multilane.runtime.outfit import Outfit
from multilane.runtime.remains import NOTHING_LEFT
from multilane.runtime.targets import find_app


class StagedApp:
    """Made from `module:name`; tasks name this class by its import path."""

    def __init__(self, target: str) -> None:
        self._app = find_app(target)
        self._clock = SystemClock()
        self._made: dict[str, Outfit] = {}
        self._open: dict[str, Outfit] = {}

    async def haul(self, consumer: str) -> Haul:
        """For one task."""
        outfit = await self._outfit(consumer)
        known = outfit.topics.names

        async def build(starts: Starts, verdicts: Verdicts) -> Team:
            unknown = [p.topic for p in starts if p.topic not in known]
            if unknown:
                raise WrongRows(f"a row is of {unknown[0]}: consumer {consumer!r} is for {' and '.join(known)}")
            return await outfit.build(starts, NOTHING_LEFT, verdicts)

        return Haul(build, self._clock)

    async def _outfit(self, consumer: str) -> Outfit:
        if not self._made:
            self._made = self._app.outfits(for_rows=True)
        outfit = self._made.get(consumer)
        if outfit is None:
            raise ConfigError(f"consumer {consumer!r} has no listener where Spark's workers find the application")
        if consumer not in self._open:
            await outfit.open()
            self._open[consumer] = outfit
        return outfit

    async def close(self) -> None:
        for outfit in self._open.values():
            await outfit.close()


def check_stageable(config: ConsumerGroupConfig) -> None:
    """What a stage cannot promise is refused before anything runs, where somebody has asked for it."""
    is_asked_for = config.unique or "retry_order" in config.model_fields_set
    if config.retry_order == "key" and config.retry is not None and is_asked_for:
        raise ConfigError(
            f"consumer {config.name!r} has retryOrder key{' (as uniqueListener)' if config.unique else ''}: to keep "
            "the order of a key across a retry, lanes have to read the retry partition beside the topic's own, and "
            f"rows of a DataFrame come from whatever Spark has read. {_instead(config)}, or run the application with "
            "`multilane run`"
        )


def _instead(config: ConsumerGroupConfig) -> str:
    return "Leave out its retry topic" if config.unique else "Set retryOrder none"
