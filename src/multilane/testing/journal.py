"""A journal: events of several streams, one line each, in a file that survives the death of its writer.

Thread: any; a line is one write in append mode, so lines of several threads never mix.

Lines written before a SIGKILL are in the file afterwards: the process buffers nothing.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, get_args

from multilane.testing.events import Event, RecordPlace

_EVENT_TYPES: Final = {kind.__name__: kind for kind in get_args(Event)}
_FIELDS: Final = {name: tuple(f.name for f in fields(kind)) for name, kind in _EVENT_TYPES.items()}


class Journal:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, stream: str, *events: Event) -> None:
        os.write(self._file, "".join(_line(stream, event) for event in events).encode())

    def close(self) -> None:
        os.close(self._file)


class JournalReader:
    """Continues where it stopped; an incomplete line is left for the next call."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def news(self) -> dict[str, list[Event]]:
        """The events written since the last call, by stream."""
        events: dict[str, list[Event]] = defaultdict(list)
        if not self._path.exists():
            return events
        with self._path.open("rb") as file:
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._position += len(line)
                stream, event = _read(line)
                events[stream].append(event)
        return events


def _line(stream: str, event: Event) -> str:
    name = type(event).__name__
    return json.dumps([stream, name, *(getattr(event, field) for field in _FIELDS[name])]) + "\n"


def _read(line: bytes) -> tuple[str, Event]:
    stream, name, *values = json.loads(line)
    known: dict[str, Any] = dict(zip(_FIELDS[name], values, strict=True))
    if "place" in known:
        known["place"] = RecordPlace(*known["place"])
    if "runs" in known:
        known["runs"] = tuple((first, last) for first, last in known["runs"])
    return stream, _EVENT_TYPES[name](**known)
