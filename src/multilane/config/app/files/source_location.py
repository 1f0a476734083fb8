"""Locations in files, and the problems found there.

Thread: none (pure values).

Owns the wording of a problem's line. Never holds the value at fault unless the caller decided that it may be shown.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from multilane.errors import printable

MOST_PROBLEMS: Final = 500
_LONGEST_NAME: Final = 120
_MOST_COMPARED: Final = 200
_MOST_LISTED: Final = 20


@dataclass(frozen=True, slots=True, order=True)
class SourceLocation:
    """Line and column count from 1; line 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """`path` is the key with its parent keys; `what` is wrong, `fix` is the remedy."""

    location: SourceLocation
    path: str
    what: str
    fix: str

    def __str__(self) -> str:
        key = f"{self.path}: " if self.path else ""
        return f"{self.location}: {key}{self.what}; {self.fix}"


class TooManyProblems(Exception):
    """There are too many problems to be useful."""


@dataclass(slots=True)
class Problems:
    """All problems found, each once, in the order of the files."""

    found: dict[Problem, None] = field(default_factory=dict)

    def add(self, location: SourceLocation, path: str, what: str, fix: str) -> None:
        self.found[Problem(location, path, what, fix)] = None
        if len(self.found) >= MOST_PROBLEMS:
            raise TooManyProblems

    def sorted(self, files: Iterable[str]) -> tuple[Problem, ...]:
        rank = {file: number for number, file in enumerate(files)}
        return tuple(sorted(self.found, key=lambda p: (rank.get(p.location.file, len(rank)), p)))


def joined(*names: str) -> str:
    """A path of keys, safe to print. A name with a dot is quoted, so that the path is unambiguous."""
    shown = (printable(name, _LONGEST_NAME) for name in names)
    return ".".join(f'"{name}"' if "." in name else name for name in shown)


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`did you mean x?`, or an empty string. Keys are compared without case, as they are read."""
    by_fold = {name.casefold(): printable(name, _LONGEST_NAME) for name in islice(known, _MOST_COMPARED)}
    near = difflib.get_close_matches(word.casefold()[:100], by_fold, n=2, cutoff=0.65)
    return f"did you mean {' or '.join(by_fold[name] for name in near)}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Names to choose from, shortened if there are many."""
    first = [printable(name, _LONGEST_NAME) for name in islice(names, _MOST_LISTED + 1)]
    return ", ".join([*first[:_MOST_LISTED], *(["..."] if len(first) > _MOST_LISTED else [])]) or "none"
