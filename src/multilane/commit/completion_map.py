"""The completion map: which records beyond the committed offset are settled, as the metadata of the commit.

Thread: none (pure).

Owns the format. The text is a list of sections, separated by semicolons: first the format's name and version, then `r=`
with the runs of settled offsets. A later version may add named sections; readers ignore unknown ones. Runs are written
as distances. `l=` binds the runs to the log that they belong to: the newest leader epoch up to their end, and the
topic's id. `t=` has the positions of the triggers that share the commit; the runs are those that all of them have
settled. Older versions neither write nor read `l=` and `t=`.

Never trusts what it reads: other tools may write commits too, and a wrong map would skip unhandled records. A text that
is not exactly in our format is ignored as a whole. Whether the map still fits the log is not known here: see
`log_fit`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from multilane.commit import trigger_positions
from multilane.commit.runs import Run, read_runs, written
from multilane.commit.sections import (
    LARGEST,
    MOST_BYTES,
    content_of,
    content_within,
    named,
    number,
    numbers,
    packed,
    packed_size,
)
from multilane.commit.trigger_positions import Position, TooManyTriggers

_FORMAT: Final = "multilane/1"
_RUNS: Final = "r="
_LOG: Final = "l="
_NO_TOPIC_ID: Final = UUID(int=0)  # Kafka's null UUID
_ID_BYTES: Final = 16
MOST_RUNS: Final = 2_000  # more than fit in a text: each takes at least two bytes
_MOST_LOG: Final = 1 + len(_LOG) + 36  # base64 of a checksum, an epoch of five bytes and an id
_OVERHEAD: Final = len(_FORMAT) + 1 + len(_RUNS) + _MOST_LOG  # all but the runs, and positions if there are any
_ROOM_BESIDE_POSITIONS: Final = 400  # positions say more than the runs that all triggers have in common


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The log that runs belong to: the leader epoch at their end, or a newer one that was read in the same log, and the
    topic's id, which brokers before 2.8 do not have."""

    leader_epoch: int
    topic_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class CompletionMap:
    """The content of a text. Without `log` it was written by an older version."""

    runs: tuple[Run, ...] = ()
    log: LogIdentity | None = None
    positions: Mapping[str, Position] = field(default_factory=dict, hash=False)


NOTHING: Final = CompletionMap()


def encode(
    frontier: int,
    runs: Sequence[Run],
    log: LogIdentity | None = None,
    positions: Mapping[str, Position] | None = None,
    most: int = MOST_BYTES,
) -> str:
    """The text for these runs, which must be in order, apart from each other and beyond `frontier`. Runs that do not
    fit are omitted from the far end: their records are redelivered after a restart, not lost. Empty without runs and
    positions, or if not even the rest fits. The coordinator takes at most `most` bytes."""
    return write(frontier, runs, log, positions, most) if runs or positions else ""


def write(
    frontier: int,
    runs: Sequence[Run],
    log: LogIdentity | None = None,
    positions: Mapping[str, Position] | None = None,
    most: int = MOST_BYTES,
) -> str:
    """The same, also without runs: a reader may still need the log that `frontier` belongs to. Raises TooManyTriggers
    if the positions do not fit."""
    usual = min(most, MOST_BYTES)
    try:
        return _written(frontier, runs, log, positions or {}, usual)
    except TooManyTriggers:
        if min(most, LARGEST) == usual:
            raise
        return _written(frontier, runs, log, positions or {}, min(most, LARGEST))  # older versions cannot read it


def _written(
    frontier: int, runs: Sequence[Run], log: LogIdentity | None, positions: Mapping[str, Position], most: int
) -> str:
    room = _room_beside_positions(most) if positions else most - _OVERHEAD
    content = written(frontier, runs, content_within(room))
    text = f"{_FORMAT};{_RUNS}{packed(frontier, content)}"
    if log is not None and log.leader_epoch >= 0:
        bound = number(log.leader_epoch) + (log.topic_id or _NO_TOPIC_ID).bytes
        text = f"{text};{_LOG}{packed(frontier, bound, content)}"
    if positions:
        return f"{text};{trigger_positions.encode(frontier, positions, most - len(text) - 1)}"
    return text if len(text) <= most else ""


def _room_beside_positions(most: int) -> int:
    return max(packed_size(0), min(_ROOM_BESIDE_POSITIONS, (most - _OVERHEAD) // 4))


def fits(names: Sequence[str], most: int = MOST_BYTES) -> bool:
    """Whether a text always has room for the positions of these triggers."""
    most = min(most, LARGEST)
    return trigger_positions.size_of_heads(names) + 1 <= most - _OVERHEAD - _room_beside_positions(most)


def fitting(names: Sequence[str], most: int = MOST_BYTES) -> int:
    """How many of these triggers fit, in their order."""
    return next(count for count in range(len(names), -1, -1) if not count or fits(names[:count], most))


def decode(text: str, frontier: int) -> tuple[Run, ...]:
    """The runs of a text that was committed with `frontier`; none if it is not exactly in our format."""
    return read(text, frontier).runs


def read(text: str, frontier: int) -> CompletionMap:
    """The content of a text that was committed with `frontier`; NOTHING if it is not exactly in our format."""
    if not 0 <= frontier < 2**63 or len(text) > LARGEST or not text.isascii():
        return NOTHING
    name, *sections = text.split(";")
    content = content_of(named(sections, _RUNS), frontier)
    runs = None if content is None else read_runs(content, frontier)
    if name != _FORMAT or content is None or runs is None:
        return NOTHING
    bound = named(sections, _LOG)
    log = None if not bound else _log_identity(content_of(bound, frontier, content))
    triggers = named(sections, trigger_positions.SECTION)
    positions = trigger_positions.decode(triggers, frontier) if triggers else {}
    if (bound and log is None) or positions is None:
        return NOTHING
    return CompletionMap(tuple(runs), log, positions)


def _log_identity(content: bytes | None) -> LogIdentity | None:
    if content is None or len(content) <= _ID_BYTES:
        return None
    found = list(numbers(content[:-_ID_BYTES]))
    if len(found) != 1 or found[0] is None or found[0] >= 2**31:
        return None
    topic_id = UUID(bytes=content[-_ID_BYTES:])
    return LogIdentity(found[0], None if topic_id == _NO_TOPIC_ID else topic_id)
