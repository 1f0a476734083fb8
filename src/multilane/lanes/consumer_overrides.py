"""Overrides of a running consumer: pause it, resume it, change its number of lanes.

Thread: none (pure values).

Overrides end with the run: the next one starts as configured.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from multilane.errors import ConfigError

MOST_LANES = 100_000


@dataclass(frozen=True, slots=True)
class ConsumerOverrides:
    """`is_paused`: records in flight end, and no others begin. `lanes`: for each partition; None: as configured."""

    is_paused: bool = False
    lanes: int | None = None

    def __post_init__(self) -> None:
        if self.lanes is not None and not 1 <= self.lanes <= MOST_LANES:
            raise ConfigError(f"{self.lanes} lanes: from 1 to {MOST_LANES:,} are possible")

    def to_json(self) -> dict[str, Any]:
        return {"is_paused": self.is_paused, "lanes": self.lanes}


AS_CONFIGURED = ConsumerOverrides()


def overrides_from(content: Mapping[str, Any]) -> ConsumerOverrides:
    return ConsumerOverrides(bool(content["is_paused"]), content["lanes"])
