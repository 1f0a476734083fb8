"""Tracebacks as bounded, escaped text, and the line of user code that raised.

Thread: any.

Formatting is cheap enough for every failed record: frames are cached, so a source line is read only once. The text of
an error is foreign: its control characters are escaped, and its further lines get a prefix, so that none of them can
pass for a log line.
"""

from __future__ import annotations

import linecache
import re
import sysconfig
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

from multilane.escaping import escape_controls, text_of

_OURS: Final = str(Path(__file__).parent)
_STANDARD: Final = sysconfig.get_path("stdlib")
_LIBRARIES: Final = ("site-packages", "dist-packages")
_MOST_CAUSES: Final = 4
_MOST_TEXT: Final = 1_000  # characters of an error's own text
_MORE_TEXT: Final = "\n    | "
_REMOTE: Final = re.compile(r'File "([^"]+)", line ([0-9]+)')  # frames of a worker process, as text


class StackFrame(NamedTuple):
    file: str
    line: int
    function: str


def stack_of(error: BaseException, limit: int = 20_000, *, hides_ours: bool = False) -> str:
    """The traceback, causes first, without a newline at the end; the middle of a long one is left out. `hides_ours`
    leaves out the outer frames of this library if other code failed."""
    parts = [_traceback(cause, hides_ours=hides_ours) for cause in _chain(error)]
    return _bounded("\nwhich led to:\n".join(parts), limit)


def raised_at(error: BaseException) -> str:
    """`shop/orders.py:20`: the innermost line of user code, else of any code outside this library, else of any code;
    empty without frames."""
    frames = [*_frames(_first_of(error)), *_remote_frames(error)] or _frames(error)
    users = [frame for frame in frames if _is_users(frame.file)]
    others = [frame for frame in frames if not frame.file.startswith(_OURS)]
    found = next((some[-1] for some in (users, others, frames) if some), None)
    return "" if found is None else f"{_short(found.file)}:{found.line}"


def runs_at(frames: Iterable[FrameType]) -> str:
    """The same for code that runs or waits; `frames`: the innermost first. Empty if none of them is a user's, and this
    library has called nothing."""
    running = [(frame.f_code.co_filename, frame.f_lineno) for frame in frames]
    called = list(takewhile(lambda place: not place[0].startswith(_OURS), running))
    users = [place for place in running if _is_users(place[0])]
    found = next((places[at] for places, at in ((users, 0), (called, -1)) if places), None)
    return "" if found is None else f"{_short(found[0])}:{found[1]}"


def class_of(error: BaseException) -> str:
    """`httpx.HTTPStatusError`; built-in errors without their module. An exception group, as `asyncio.TaskGroup` raises
    it, includes the class of its first error: `ExceptionGroup[ValueError]`."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    first = _first_of(error)
    return escape_controls(name if first is error else f"{name}[{class_of(first)}]")


def message_of(error: BaseException) -> str:
    """The error's own text, not escaped. A group's text only has the number of errors, so its first error is added."""
    first = _first_of(error)
    return text_of(error) if first is error else f"{text_of(error)}: {class_of(first)}: {text_of(first)}"


def _first_of(error: BaseException) -> BaseException:
    """The first error of a group, also of nested groups; the error itself if it is not a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _chain(error: BaseException) -> list[BaseException]:
    """An error and its causes, the root cause first; the errors of a group count as its causes."""
    found: list[BaseException] = []
    waiting = deque([error])
    while waiting and len(found) < _MOST_CAUSES:
        current = waiting.popleft()
        if any(current is known for known in found):
            continue
        found.append(current)
        waiting.extend(current.exceptions[:_MOST_CAUSES] if isinstance(current, BaseExceptionGroup) else ())
        cause = (
            current.__cause__ if current.__cause__ is not None or current.__suppress_context__ else current.__context__
        )
        waiting.extend(() if cause is None else (cause,))
    return found[::-1]


def _traceback(error: BaseException, *, hides_ours: bool) -> str:
    frames = _frames(error)
    if hides_ours:
        first = next((n for n, frame in enumerate(frames) if not frame.file.startswith(_OURS)), 0)
        frames = frames[first:]
    head = ["Traceback (most recent call last):"] if frames else []
    return "\n".join([*head, *(_frame_text(*frame) for frame in frames), _error_line(error)])


def _error_line(error: BaseException) -> str:
    text = "\n".join([text_of(error), *_notes(error)])
    lines = text[:_MOST_TEXT].splitlines()
    ending = "..." if len(text) > _MOST_TEXT else ""
    message = _MORE_TEXT.join(escape_controls(line) for line in lines)
    return f"{class_of(error)}: {message}{ending}" if message else class_of(error)


def _notes(error: BaseException) -> list[str]:
    """The notes of `add_note`."""
    notes = getattr(error, "__notes__", None)
    return [text_of(note) for note in notes] if isinstance(notes, list) else []


def _frames(error: BaseException) -> list[StackFrame]:
    walked = traceback.walk_tb(error.__traceback__)
    return [StackFrame(frame.f_code.co_filename, line or 0, frame.f_code.co_name) for frame, line in walked]


def _remote_frames(error: BaseException) -> Iterator[StackFrame]:
    remote = getattr(error.__cause__, "tb", None)  # concurrent.futures passes it on as text
    for file, line in _REMOTE.findall(remote) if isinstance(remote, str) else ():
        yield StackFrame(file, int(line), "")


@lru_cache(maxsize=4_096)
def _frame_text(file: str, line: int, function: str) -> str:
    source = escape_controls(linecache.getline(file, line).strip())
    return f'  File "{escape_controls(file)}", line {line}, in {escape_controls(function)}' + (
        f"\n    {source}" if source else ""
    )


@lru_cache(maxsize=4_096)
def _short(file: str) -> str:
    return "/".join(Path(file).parts[-2:])


@lru_cache(maxsize=4_096)
def _is_users(file: str) -> bool:
    parts = Path(file).parts
    is_installed = any(name in parts for name in _LIBRARIES) or file.startswith((_STANDARD, "<frozen"))
    return not is_installed and not file.startswith(_OURS)


def _bounded(text: str, limit: int) -> str:
    """A quarter of the limit from the beginning, the rest from the end, which has the raising line and the error."""
    if len(text) <= limit:
        return text
    gap = "\n  ...\n"
    head = limit // 4
    return text[:head].rpartition("\n")[0] + gap + text[len(text) - (limit - head - len(gap)) :].partition("\n")[2]
