"""Runs of settled offsets, written as distances: gap, length, gap, length, and so on.

Thread: none (pure).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from multilane.commit.sections import number, numbers

Run = tuple[int, int]  # first and last settled offset
SettledOffsets = tuple[int, tuple[Run, ...]]  # everything below the offset, and these runs beyond it


def written(frontier: int, runs: Sequence[Run], most: int) -> bytes:
    """At most so many bytes for these runs, which must be in order, apart from each other and beyond `frontier`. Those
    that do not fit are omitted from the far end."""
    content = bytearray()
    before = frontier
    for first, last in runs:
        piece = number(first - before) + number(last - first + 1)
        if len(content) + len(piece) > most:
            break
        content += piece
        before = last + 1
    return bytes(content)


def read_runs(content: bytes, frontier: int) -> list[Run] | None:
    """None if the content is not exactly in this form."""
    runs: list[Run] = []
    before = frontier
    found = list(numbers(content))
    if len(found) % 2 or None in found:
        return None
    for gap, length in zip(found[::2], found[1::2], strict=True):
        if not gap or not length:  # the frontier itself is not settled, and runs never touch
            return None
        first = before + gap
        before = first + length
        if before >= 2**63:
            return None
        runs.append((first, before - 1))
    return runs


def common(settled: Iterable[tuple[int, Sequence[Run]]], frontier: int) -> tuple[Run, ...]:
    """The runs beyond `frontier` that are settled in all of these: each has an offset below which everything is
    settled, and runs beyond it."""
    runs: list[Run] | None = None
    for offset, own in settled:
        whole = [(frontier + 1, offset - 1), *own] if offset > frontier + 1 else list(own)
        runs = _joined(whole, frontier) if runs is None else list(_both(runs, _joined(whole, frontier)))
        if not runs:
            break
    return tuple(runs or ())


def _joined(runs: Iterable[Run], frontier: int) -> list[Run]:
    """Beyond the frontier, with runs that touch made one."""
    joined: list[Run] = []
    for first, last in runs:
        first = max(first, frontier + 1)  # noqa: PLW2901 - the part beyond the frontier
        if last < first:
            continue
        if joined and joined[-1][1] + 1 >= first:
            joined[-1] = (joined[-1][0], max(joined[-1][1], last))
        else:
            joined.append((first, last))
    return joined


def _both(one: Sequence[Run], other: Sequence[Run]) -> Iterable[Run]:
    mine = yours = 0
    while mine < len(one) and yours < len(other):
        first, last = max(one[mine][0], other[yours][0]), min(one[mine][1], other[yours][1])
        if first <= last:
            yield first, last
        if one[mine][1] < other[yours][1]:
            mine += 1
        else:
            yours += 1
