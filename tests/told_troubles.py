"""What a reader's troubles are told to, in tests of the fetching: a list."""

from __future__ import annotations

from typing import Any

from multilane.client.fetch.cursor import Cursor
from multilane.client.fetch.reader import Trouble
from multilane.errors import MultilaneError


def troubles_told_to(told: list[tuple[Any, ...]]) -> Trouble:
    """A stopped cursor is stopped, as the consumer would; everything else is only written down."""

    def stopped(cursor: Cursor, error: MultilaneError) -> None:
        cursor.stop()
        told.append(("stopped", cursor.partition, error))

    return Trouble(
        out_of_range=lambda cursor, _fetched: told.append(("out of range", cursor.partition)),
        diverged=lambda cursor, epoch, end: told.append(("diverged", cursor.partition, epoch, end)),
        corrupt=lambda cursor, error: told.append(("corrupt", cursor.partition, error)),
        stopped=stopped,
        refused=lambda error: told.append(("refused", error)),
    )
