"""Where something stands in a file, and what is wrong there.

Thread: none (pure values).

Owns the wording of a problem's line. Never holds the value that is at fault unless someone decided that it may be seen.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Line and column count from 1; 0 is the file as a whole."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """`path` is the key with all keys above it; `fix` says what to do."""

    place: Place
    path: str
    what: str
    fix: str

    def __str__(self) -> str:
        key = f"{self.path}: " if self.path else ""
        return f"{self.place}: {key}{self.what}; {self.fix}"


@dataclass(slots=True)
class Problems:
    """All that was found, each once, in the order of the files."""

    found: list[Problem] = field(default_factory=list)

    def add(self, place: Place, path: str, what: str, fix: str) -> None:
        problem = Problem(place, path, what, fix)
        if problem not in self.found:
            self.found.append(problem)

    def sorted(self, files: Iterable[str]) -> tuple[Problem, ...]:
        rank = {file: number for number, file in enumerate(files)}
        return tuple(sorted(self.found, key=lambda p: (rank.get(p.place.file, len(rank)), p)))


def joined(*names: str) -> str:
    """A path of keys. A name that holds a dot is quoted, so that the path reads one way only."""
    return ".".join(f'"{name}"' if "." in name else name for name in names)


def meant(word: str, known: Iterable[str]) -> str:
    """`did you mean x?`, or nothing. Keys are compared without case, as they are read."""
    by_fold = {name.casefold(): name for name in known}
    near = difflib.get_close_matches(word.casefold()[:100], by_fold, n=2, cutoff=0.65)
    return f"did you mean {' or '.join(by_fold[name] for name in near)}?" if near else ""
