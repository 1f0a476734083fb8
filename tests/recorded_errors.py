"""Error handlers of a reader that append to a list, for tests of the fetching."""

from __future__ import annotations

from typing import Any

from multilane.client.fetch.cursor import Cursor
from multilane.client.fetch.reader import ErrorHandlers
from multilane.errors import MultilaneError


def record_errors(errors: list[tuple[Any, ...]]) -> ErrorHandlers:
    """A stopped cursor is stopped, as the consumer would do; everything else is only recorded."""

    def stopped(cursor: Cursor, error: MultilaneError) -> None:
        cursor.stop()
        errors.append(("stopped", cursor.partition, error))

    return ErrorHandlers(
        out_of_range=lambda cursor, _fetched: errors.append(("out of range", cursor.partition)),
        diverged=lambda cursor, epoch, end: errors.append(("diverged", cursor.partition, epoch, end)),
        corrupt=lambda cursor, error: errors.append(("corrupt", cursor.partition, error)),
        stopped=stopped,
        refused=lambda error: errors.append(("refused", error)),
    )
