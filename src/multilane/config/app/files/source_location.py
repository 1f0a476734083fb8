"""Where something stands in a file, and what is wrong there.

Thread: none (pure values).

Owns the wording of a problem's line. Never holds the value that is at fault unless someone decided that it may be seen.
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
    """Line and column count from 1; 0 is the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """`path` is the key with all keys above it; `fix` says what to do."""

    place: SourceLocation
    path: str
    what: str
    fix: str

    def __str__(self) -> str:
        key = f"{self.path}: " if self.path else ""
        return f"{self.place}: {key}{self.what}; {self.fix}"


class TooMany(Exception):
    """So much is wrong that nobody will read on."""


@dataclass(slots=True)
class Problems:
    """All that was found, each once, in the order of the files."""

    found: dict[Problem, None] = field(default_factory=dict)

    def add(self, place: SourceLocation, path: str, what: str, fix: str) -> None:
        self.found[Problem(place, path, what, fix)] = None
        if len(self.found) >= MOST_PROBLEMS:
            raise TooMany

    def sorted(self, files: Iterable[str]) -> tuple[Problem, ...]:
        rank = {file: number for number, file in enumerate(files)}
        return tuple(sorted(self.found, key=lambda p: (rank.get(p.place.file, len(rank)), p)))


def joined(*names: str) -> str:
    """A path of keys, safe to print. A name that holds a dot is quoted, so that the path reads one way only."""
    shown = (printable(name, _LONGEST_NAME) for name in names)
    return ".".join(f'"{name}"' if "." in name else name for name in shown)


def meant(word: str, known: Iterable[str]) -> str:
    """`did you mean x?`, or nothing. Keys are compared without case, as they are read."""
    by_fold = {name.casefold(): printable(name, _LONGEST_NAME) for name in islice(known, _MOST_COMPARED)}
    near = difflib.get_close_matches(word.casefold()[:100], by_fold, n=2, cutoff=0.65)
    return f"did you mean {' or '.join(by_fold[name] for name in near)}?" if near else ""


def listed(names: Iterable[str]) -> str:
    """Names to choose from, the first of them if there are many."""
    first = [printable(name, _LONGEST_NAME) for name in islice(names, _MOST_LISTED + 1)]
    return ", ".join([*first[:_MOST_LISTED], *(["..."] if len(first) > _MOST_LISTED else [])]) or "none"
