"""The positions of the triggers that share a commit, as a section of its metadata.

Thread: none (pure).

A group commits the lowest offset of all triggers. What each of them has settled beyond it is named here, so that a
trigger that was ahead repeats nothing after a restart. The positions come first and always fit, or nothing is written;
the runs beyond them share what is left, each trigger a fair part. Readers that do not know the section ignore it.

Never trusts what it reads: see `sections`. Whether a position fits the log is not known here: see `log_fit`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from multilane.commit.runs import Run, read_runs, written
from multilane.commit.sections import content_of, content_within, number, numbers, packed, packed_size

SECTION: Final = "t="
LONGEST_NAME: Final = 200  # bytes
_VERSION: Final = 1
_MOST_TRIGGERS: Final = 1_000
_BELOW: Final = 1  # flags: the position is below the committed offset
_ABSENT: Final = 2


@dataclass(frozen=True, slots=True)
class Position:
    """Everything below `offset` is settled, and `runs` beyond it. `absent_since` is when the trigger was first missed,
    in seconds since 1970; None if it is here."""

    offset: int
    runs: tuple[Run, ...] = ()
    absent_since: int | None = None

    @property
    def end(self) -> int:
        """The offset after the last record that is settled."""
        return self.runs[-1][1] + 1 if self.runs else self.offset

    def without_runs(self) -> Position:
        return Position(self.offset, (), self.absent_since)

    def below(self, offset: int) -> Position:
        """The part of it below this offset."""
        if self.offset >= offset:
            return Position(min(self.offset, offset), (), self.absent_since)
        runs = tuple((first, min(last, offset - 1)) for first, last in self.runs if first < offset)
        return Position(self.offset, runs, self.absent_since)


class TooManyTriggers(ValueError):
    """The positions do not fit; `fitting` is how many would."""

    def __init__(self, fitting: int) -> None:
        super().__init__(f"only {fitting} triggers fit")
        self.fitting = fitting


def size_of_heads(names: Iterable[str]) -> int:
    """The most characters that the positions of these triggers take, without runs."""
    return len(SECTION) + packed_size(1 + sum(len(name.encode()) + 2 + 1 + 9 + 5 + 1 for name in names))


def encode(frontier: int, positions: Mapping[str, Position], most: int) -> str:
    """The section for a commit at `frontier`, at most so many characters. Raises TooManyTriggers."""
    room = content_within(most - len(SECTION))
    heads = {name: _head(name, position, frontier) for name, position in sorted(positions.items())}
    left = room - 1 - sum(len(head) + 1 for head in heads.values())  # a byte for the length of each list of runs
    if left < 0:
        raise TooManyTriggers(_fitting(heads.values(), room - 1))
    content = bytearray([_VERSION])
    waiting = len(heads)
    for name in sorted(heads, key=lambda name: len(positions[name].runs)):  # what one leaves goes to the others
        runs = written(positions[name].offset, positions[name].runs, left // waiting)
        while len(number(len(runs))) - 1 + len(runs) > left // waiting and runs:  # a longer length of the list
            runs = written(positions[name].offset, positions[name].runs, len(runs) - 1)
        left -= len(number(len(runs))) - 1 + len(runs)
        waiting -= 1
        content += heads[name] + number(len(runs)) + runs
    return SECTION + packed(frontier, content)


def decode(found: list[str], frontier: int) -> dict[str, Position] | None:
    """The positions by trigger; None if the section is not exactly in our format."""
    content = content_of(found, frontier)
    if not content or content[0] != _VERSION:
        return None
    reader = _Reader(content[1:], frontier)
    positions: dict[str, Position] = {}
    while reader.left:
        entry = reader.entry()
        if entry is None or entry[0] in positions or len(positions) == _MOST_TRIGGERS:
            return None
        positions[entry[0]] = entry[1]
    return positions


def _head(name: str, position: Position, frontier: int) -> bytes:
    distance, since = position.offset - frontier, position.absent_since
    flags = (_BELOW if distance < 0 else 0) | (0 if since is None else _ABSENT)
    encoded = name.encode()
    return b"".join(
        (number(len(encoded)), encoded, number(flags), number(abs(distance)), b"" if since is None else number(since))
    )


def _fitting(heads: Iterable[bytes], room: int) -> int:
    fitting = 0
    for head in sorted(map(len, heads), reverse=True):
        room -= head + 1
        if room < 0:
            break
        fitting += 1
    return fitting


class _Reader:
    def __init__(self, content: bytes, frontier: int) -> None:
        self.left = content
        self._frontier = frontier

    def entry(self) -> tuple[str, Position] | None:
        name, flags, distance = self._name(), self._number(), self._number()
        if name is None or flags is None or distance is None or flags & ~(_BELOW | _ABSENT):
            return None
        since = self._number() if flags & _ABSENT else None
        offset = self._frontier + (-distance if flags & _BELOW else distance)
        content = self._bytes()
        if content is None or not 0 <= offset < 2**63 or (flags & _ABSENT and since is None):
            return None
        runs = read_runs(content, offset)
        return None if runs is None else (name, Position(offset, tuple(runs), since))

    def _name(self) -> str | None:
        encoded = self._bytes()
        if not encoded or len(encoded) > LONGEST_NAME:
            return None
        try:
            name = encoded.decode()
        except UnicodeDecodeError:
            return None
        return name if name.isprintable() else None

    def _bytes(self) -> bytes | None:
        many = self._number()
        if many is None or many > len(self.left):
            return None
        taken, self.left = self.left[:many], self.left[many:]
        return taken

    def _number(self) -> int | None:
        value = next(numbers(self.left), None)
        if value is not None:
            self.left = self.left[len(number(value)) :]
        return value
