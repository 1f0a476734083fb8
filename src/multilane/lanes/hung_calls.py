"""Calls that hang, as text for the log: their records, and the lines of code at which they wait.

Thread: loop; reads the stacks of other threads.

A record is named by its position and a digest of its key, the lowest offsets first. Owns nothing; never ends a call.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from types import FrameType
from typing import Any, Final

from multilane.lanes.failure_log import name_of
from multilane.lanes.lane import Lane
from multilane.stacks import runs_at

_MOST_RECORDS: Final = 3
_MOST_LINES: Final = 3


def described(lanes: Sequence[Lane], threads: Collection[int]) -> str:
    """`orders-3@1042, key #5d41402a; ... (and 7 more), at shop/db.py:20 (9 x)`. `threads`: those that may run the
    calls."""
    records = sorted((record for lane in lanes for record in lane.records[:1]), key=lambda record: record.offset)
    names = "; ".join(map(name_of, records[:_MOST_RECORDS]))
    more = f" (and {len(lanes) - _MOST_RECORDS} more)" if len(lanes) > _MOST_RECORDS else ""
    lines = Counter(filter(None, (*_of_coroutines(lanes), *_of_threads(threads))))
    where = ", ".join(f"{line} ({many} x)" for line, many in lines.most_common(_MOST_LINES))
    return f"{names}{more}, at {where}" if where else names + more


def _of_threads(threads: Collection[int]) -> Iterator[str]:
    frames = sys._current_frames() if threads else {}  # noqa: SLF001 - the only way to another thread's stack
    for thread in list(threads):  # they start and end meanwhile
        if (frame := frames.get(thread)) is not None:
            yield runs_at(_outwards(frame))


def _outwards(innermost: FrameType) -> Iterator[FrameType]:
    frame: FrameType | None = innermost
    while frame is not None:
        yield frame
        frame = frame.f_back


def _of_coroutines(lanes: Sequence[Lane]) -> Iterator[str]:
    for lane in lanes:
        if lane.cancels and lane.task is not None:
            yield runs_at(reversed(list(_awaiting(lane.task.get_coro()))))


def _awaiting(coroutine: Any) -> Iterator[FrameType]:
    """The frames of a coroutine and of those that it awaits."""
    while coroutine is not None:
        frame = getattr(coroutine, "cr_frame", None) or getattr(coroutine, "gi_frame", None)
        if frame is not None:
            yield frame
        coroutine = getattr(coroutine, "cr_await", None) or getattr(coroutine, "gi_yieldfrom", None)
