"""Keys of one connection, and the signature on each of its messages.

Thread: none (pure); the owner of a `MessageSigner` uses it from one thread at a time.

Both sides know the run's token and have exchanged nonces. From these, each direction of the connection derives a key of
its own (HMAC-SHA256 with the token over a label and the transcript). A message carries an HMAC over its sequence number
and its text. A message that was changed, repeated, dropped, reordered or reflected to its author is not accepted.
Nothing is encrypted.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass
from typing import Final

DRIVER: Final = "driver"
MEMBER: Final = "member"
_VERSION: Final = "multilane line 2"
SIGNATURE_EXTRA: Final = 65  # bytes that a signature adds to a message: hexadecimal digits and a space


@dataclass(frozen=True, slots=True)
class Transcript:
    """What both sides know of a connection: the address that the member connected to, and both nonces."""

    address: tuple[str, int]  # as the driver advertises it: a proof is valid for one server of the run only
    driver_nonce: str
    member_nonce: str

    def derive(self, token: str, label: str) -> bytes:
        text = "\n".join(
            (_VERSION, label, f"{self.address[0]}:{self.address[1]}", self.driver_nonce, self.member_nonce)
        )
        return hmac.digest(token.encode(), text.encode(), "sha256")

    def proof(self, token: str, role: str) -> str:
        """Only a `role` that has the token can compute this for the connection."""
        return self.derive(token, f"proof of {role}").hex()


class MessageSigner:
    """One direction of a connection."""

    def __init__(self, token: str, transcript: Transcript, sender: str) -> None:
        self._key = transcript.derive(token, f"lines of {sender}")
        self._count = 0

    def signed(self, text: bytes) -> bytes:
        """The next message, without its line end."""
        return self._next(text) + text

    def opened(self, line: bytes) -> bytes | None:
        """The text of the next message. None if this is not it; nothing is accepted after that."""
        signature, text = line[:SIGNATURE_EXTRA], line[SIGNATURE_EXTRA:]
        if self._count >= 0 and hmac.compare_digest(signature, self._next(text)):
            return text
        self._count = -1
        return None

    def _next(self, text: bytes) -> bytes:
        number = self._count.to_bytes(8, "big")
        self._count += 1
        return hmac.digest(self._key, number + text, "sha256").hex().encode() + b" "
