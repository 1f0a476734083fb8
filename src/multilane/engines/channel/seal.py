"""Keys of one connection, and the signature on each of its lines.

Thread: none (pure); whoever holds a `Seal` uses it from one thread at a time.

Both sides know the run's token and have told each other a random number. From these each direction of the connection
gets a key of its own (HMAC-SHA256 with the token over a label and the transcript). A line carries an HMAC over its
number and its text: one that is changed, repeated, left out, out of order or sent back to its author is not accepted.
Nothing is encrypted.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

DRIVER: Final = "driver"
MEMBER: Final = "member"
_VERSION: Final = "multilane line 2"
SEALED_EXTRA: Final = 65  # bytes that a seal adds to a line: hexadecimal digits and a space


@dataclass(frozen=True, slots=True)
class Transcript:
    """What both sides know of a connection: where the member called, and both numbers."""

    address: tuple[str, int]  # as the driver advertises it: a call to one desk is no call to another of the same run
    drivers: str
    members: str

    def derive(self, token: str, label: str) -> bytes:
        text = "\n".join((_VERSION, label, f"{self.address[0]}:{self.address[1]}", self.drivers, self.members))
        return hmac.digest(token.encode(), text.encode(), "sha256")

    def proof(self, token: str, role: str) -> str:
        """What only a `role` that has the token can say on this connection."""
        return self.derive(token, f"proof of {role}").hex()


class Seal:
    """One direction of a connection."""

    def __init__(self, token: str, transcript: Transcript, sender: str) -> None:
        self._key = transcript.derive(token, f"lines of {sender}")
        self._count = 0

    def signed(self, text: bytes) -> bytes:
        """The next line, without its end."""
        return self._next(text) + text

    def opened(self, line: bytes) -> bytes | None:
        """The text of the next line, or None if this is not it. After that nothing is accepted any more."""
        signature, text = line[:SEALED_EXTRA], line[SEALED_EXTRA:]
        if self._count >= 0 and hmac.compare_digest(signature, self._next(text)):
            return text
        self._count = -1
        return None

    def _next(self, text: bytes) -> bytes:
        number = self._count.to_bytes(8, "big")
        self._count += 1
        return hmac.digest(self._key, number + text, "sha256").hex().encode() + b" "
