"""The root of the tree of errors, and errors of the configuration.

Thread: any (values).
"""

from __future__ import annotations

from collections.abc import Sequence


class MultilaneError(Exception):
    """Root of the tree."""

    retriable: bool = False
    refresh_metadata: bool = False
    fatal: bool = False


class ConfigError(MultilaneError):
    """The configuration is wrong; the message names the key, the fault and what to write instead."""


class ConfigProblems(ConfigError):
    """Every problem in an app's files, one per line; `problems` has them as objects."""

    def __init__(self, problems: Sequence[object]) -> None:
        self.problems = tuple(problems)
        count = "1 problem" if len(self.problems) == 1 else f"{len(self.problems)} problems"
        super().__init__("\n".join((f"the configuration has {count}:", *(f"  {problem}" for problem in self.problems))))

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.problems,))


class TargetNotFound(ConfigError):
    """MODULE:NAME does not name an application."""
