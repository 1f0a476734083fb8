"""Whether the positions of triggers fit into the commits of the group that they share.

Thread: loop (one owner).

The group's coordinator says how much a commit takes. Until it has, nothing is refused: whoever commits asks it before
it joins. Owns that limit.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from multilane.commit import completion_map
from multilane.commit.sections import LARGEST
from multilane.errors import ConfigError


class CommitRoom:
    def __init__(self) -> None:
        self.most: int | None = None  # bytes of metadata that the coordinator takes

    def check(self, group: str, names: Sequence[str]) -> None:
        """Raises ConfigError if these triggers do not fit."""
        if self.most is not None and not completion_map.fits(names, self.most):
            raise ConfigError(
                f"{len(names)} triggers share a consumer of group {group}, but a commit has room for the positions of "
                f"{completion_map.fitting(names, self.most)}: its metadata may have {min(self.most, LARGEST)} bytes "
                "(offset.metadata.max.bytes of the brokers). Raise that limit, set sharing: off for the others, or "
                "give some of them another group"
            )

    def check_absent(self, group: str, here: Sequence[str], named: Collection[str]) -> None:
        """The same for those that run and those that a commit names."""
        absent = sorted(set(named) - set(here))
        if self.most is not None and absent and not completion_map.fits([*here, *absent], self.most):
            raise ConfigError(
                f"group {group}: the positions of {len(here)} triggers and of {len(absent)} that do not run any more "
                f"do not fit into a commit. Forget some: multilane triggers forget {group} {absent[0]}"
            )
