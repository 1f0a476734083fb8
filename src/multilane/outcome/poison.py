"""The failure of a record that is not handled again, because its process died each time it was.

Thread: none (pure).
"""

from __future__ import annotations

from multilane.errors import MultilaneError


class SuspectedPoison(MultilaneError):
    """The record goes to the error topic unhandled."""

    def __init__(self, crashes: int) -> None:
        self.crashes = crashes
        super().__init__(
            f"the process died {crashes} times while handling this record, at least once with no other call running"
        )
