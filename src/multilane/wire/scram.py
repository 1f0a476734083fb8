"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677), the client's side, without channel binding as in Kafka.

Thread: none (pure). The nonce is passed in.

The broker must prove that it knows the password too: the login counts only after its signature is verified. Anything a
hostile server could send (a foreign nonce, a too small or huge iteration count, junk) is refused with its own message.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import re
from enum import Enum, auto
from typing import Final

from multilane.config.security import PasswordLogin
from multilane.errors import SaslError, printable

MIN_ITERATIONS: Final = 4_096
# Kafka's own tools store at most 16,384. The key is derived on the network thread: this many take about 30 ms.
MAX_ITERATIONS: Final = 65_536
_HASHES: Final = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_NO_BINDING: Final = "n,,"
_NONCE: Final = re.compile(r"[\x21-\x2b\x2d-\x7e]+", re.ASCII)
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_MAX_MESSAGE: Final = 16_384
_MIN_NONCE: Final = 16


def _utf8(text: str, what: str) -> bytes:
    """The bytes Kafka hashes. The RFC requires SASLprep (RFC 4013) first, but no Kafka broker or tool applies it:
    stored credentials come from the raw UTF-8, so a prepared password would not match if the two differ."""
    if _SURROGATE.search(text) is not None:  # checked first: an encoding error would contain the text
        raise SaslError(f"the {what} has characters that cannot be sent (lone surrogates)")
    return text.encode()


class _Step(Enum):
    START = auto()
    CHALLENGE = auto()
    PROOF = auto()
    DONE = auto()


class ScramConversation:
    """Four messages: our nonce; salt and count; our proof; the broker's proof."""

    def __init__(self, login: PasswordLogin, nonce: str) -> None:
        if login.mechanism not in _HASHES:
            raise SaslError(f"{printable(login.mechanism, 40)} is not a SCRAM mechanism")
        if len(nonce) < _MIN_NONCE or _NONCE.fullmatch(nonce) is None:
            raise SaslError(f"a SCRAM nonce has at least {_MIN_NONCE} printable characters and no comma")
        self._hash = _HASHES[login.mechanism]
        self._password = login.password
        self._nonce = nonce
        name = _utf8(login.username, "user name").decode().replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}"
        self._expected = b""
        self._step = _Step.START

    def first(self) -> bytes:
        self._step = _Step.CHALLENGE
        return f"{_NO_BINDING}{self._first_bare}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        match self._step:
            case _Step.CHALLENGE:
                return self._prove(challenge)
            case _Step.PROOF:
                self._verify(challenge)
                return None
            case _:
                raise SaslError("a SCRAM message arrived out of turn")

    def _prove(self, challenge: bytes) -> bytes:
        text, parts = _parts(challenge)
        nonce, salt, iterations = _server_first(parts)
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise SaslError("the broker's SCRAM nonce does not extend ours; this may be a replay")
        binding = base64.b64encode(_NO_BINDING.encode()).decode()
        without_proof = f"c={binding},r={nonce}"
        signed = f"{self._first_bare},{text},{without_proof}".encode()
        proof, self._expected = self._sign(salt, iterations, signed)
        self._step = _Step.PROOF
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def _sign(self, salt: bytes, iterations: int, signed: bytes) -> tuple[bytes, bytes]:
        """Our proof, and the signature the broker must answer with."""
        password = _utf8(self._password.reveal(), "password")
        salted = hashlib.pbkdf2_hmac(self._hash, password, salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        stored_key = hashlib.new(self._hash, client_key).digest()
        signature = hmac.digest(stored_key, signed, self._hash)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(salted, b"Server Key", self._hash)
        return proof, hmac.digest(server_key, signed, self._hash)

    def _verify(self, challenge: bytes) -> None:
        _, parts = _parts(challenge)
        name, value = parts[0]
        if name != "v":
            raise SaslError("the broker's last SCRAM message has no signature")
        if not hmac.compare_digest(_decoded(value, "signature"), self._expected):
            raise SaslError("the broker's SCRAM signature is wrong: it does not know the password")
        self._step = _Step.DONE


def _parts(challenge: bytes) -> tuple[str, list[tuple[str, str]]]:
    """The message as text and as (letter, value) pairs; raises an error that the server reports."""
    if not challenge:
        raise SaslError("the broker ended SCRAM before it proved that it knows the password")
    if len(challenge) > _MAX_MESSAGE:
        raise SaslError("the broker sent a SCRAM message that is too long")
    try:
        text = challenge.decode()
    except UnicodeDecodeError:
        raise SaslError("the broker sent a SCRAM message that is not text") from None
    if text.startswith("e="):
        raise SaslError(f"the broker refused the login: {printable(text[2:], 200) or 'no reason given'}")
    parts = []
    for part in text.split(","):
        if len(part) < 2 or part[1] != "=" or not part[0].isascii() or not part[0].isalpha():
            raise SaslError("the broker sent a malformed SCRAM message")
        parts.append((part[0], part[2:]))
    return text, parts


def _server_first(parts: list[tuple[str, str]]) -> tuple[str, bytes, int]:
    """Nonce, salt and iteration count, in the order of the RFC; further parts are extensions."""
    if parts[0][0] == "m":
        raise SaslError("the broker asks for a SCRAM extension that is not supported")
    if [name for name, _ in parts[:3]] != ["r", "s", "i"]:
        raise SaslError("the broker's first SCRAM message lacks nonce, salt or iteration count")
    nonce, salt, count = (value for _, value in parts[:3])
    if _NONCE.fullmatch(nonce) is None:
        raise SaslError("the broker's SCRAM nonce has characters that are not allowed")
    raw = _decoded(salt, "salt")
    if not raw:
        raise SaslError("the broker sent an empty SCRAM salt")
    if not count.isascii() or not count.isdigit() or len(count) > 10:
        raise SaslError("the broker's SCRAM iteration count is not a number")
    iterations = int(count)
    if not MIN_ITERATIONS <= iterations <= MAX_ITERATIONS:
        raise SaslError(
            f"the broker asks for {iterations} SCRAM iterations; {MIN_ITERATIONS} to {MAX_ITERATIONS} are accepted "
            "(Kafka itself stores 4096 to 16384): check that this is your broker, or store the credential again with "
            "fewer iterations"
        )
    return nonce, raw, iterations


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except (binascii.Error, ValueError):
        raise SaslError(f"the broker's SCRAM {what} is not base64") from None
