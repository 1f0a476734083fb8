"""The client's side of a SASL login as a conversation: bytes out, challenge in, until both sides are satisfied.

Thread: none (pure). No socket, no clock, no random source: nonce and token are passed in.

`Conversation.first()` returns the first message; `next(challenge)` returns the next one, or None when the login is
complete on our side. A `SaslError` names the problem and never contains a password, a token or a proof. SCRAM is in
`scram`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, Protocol, assert_never

from multilane.config.security import PasswordLogin, SaslLogin, Token, TokenLogin
from multilane.errors import SaslError, printable
from multilane.secret import MASK, Secret
from multilane.wire.scram import ScramConversation

_UNSENDABLE: Final = re.compile("[\0\ud800-\udfff]")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+", re.ASCII)
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+", re.ASCII)
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*", re.ASCII)


class Conversation(Protocol):
    """One login on one connection; every attempt gets a new one."""

    def first(self) -> bytes: ...
    def next(self, challenge: bytes) -> bytes | None: ...


def begin(login: SaslLogin, *, nonce: str, token: Token | None = None) -> Conversation:
    """The conversation of a configured login. `nonce` is for SCRAM, `token` for OAUTHBEARER (fetched beforehand)."""
    match login:
        case PasswordLogin(mechanism="PLAIN"):
            return PlainConversation(login.username, login.password)
        case PasswordLogin():
            return ScramConversation(login, nonce)
        case TokenLogin():
            if token is None:
                raise SaslError("OAUTHBEARER needs a token and none was given")
            return TokenConversation(token, dict(login.extensions))
        case _ as unreachable:
            assert_never(unreachable)


class PlainConversation:
    """RFC 4616: everything in one message. The broker's response is empty."""

    def __init__(self, username: str, password: Secret) -> None:
        for text in (username, password.reveal()):
            if _UNSENDABLE.search(text) is not None:
                raise SaslError("PLAIN cannot carry a NUL or a lone surrogate in a user name or a password")
        self._username = username
        self._password = password

    def first(self) -> bytes:
        return f"\0{self._username}\0{self._password.reveal()}".encode()

    def next(self, challenge: bytes) -> bytes | None:
        if challenge:
            raise SaslError("the broker answered PLAIN with a challenge, which the mechanism does not have")
        return None


class TokenConversation:
    """RFC 7628 (OAUTHBEARER). The broker refuses with a JSON challenge, the client answers with one 0x01, and then the
    broker ends the login. So the refusal is kept in `refusal` and raised at the next challenge."""

    def __init__(self, token: Token, extensions: Mapping[str, str]) -> None:
        if _TOKEN.fullmatch(token.value.reveal()) is None:
            raise SaslError("the token provider returned a token with characters that a bearer token cannot have")
        self._token = token
        self._extensions = _checked({**extensions, **token.extensions})
        self.refusal: SaslError | None = None

    def first(self) -> bytes:
        pairs = "".join(f"{name}={value}\x01" for name, value in self._extensions.items())
        return f"n,,\x01auth=Bearer {self._token.value.reveal()}\x01{pairs}\x01".encode()

    def next(self, challenge: bytes) -> bytes | None:
        if self.refusal is not None:
            raise self.refusal
        if not challenge:
            return None
        reason = _refusal_text(challenge).replace(self._token.value.reveal(), MASK)
        self.refusal = SaslError(f"the broker refused the token: {reason}")
        return b"\x01"


def _checked(extensions: Mapping[str, str]) -> Mapping[str, str]:
    for name, value in extensions.items():
        if name == "auth" or _EXTENSION_NAME.fullmatch(name) is None:
            raise SaslError(f"OAUTHBEARER extension {printable(name, 40)!r}: the name must be letters, and not 'auth'")
        if _EXTENSION_VALUE.fullmatch(value) is None:
            raise SaslError(f"OAUTHBEARER extension {name}: the value has characters that cannot be sent")
    return extensions


def _refusal_text(challenge: bytes) -> str:
    """The reason in the broker's JSON, if it is readable. The text is not trusted."""
    try:
        refusal = json.loads(challenge[:4096].decode())
    except (ValueError, RecursionError):
        refusal = None
    if not isinstance(refusal, dict):
        return "its reason is not readable"
    found = {name: refusal.get(name) for name in ("status", "scope")}
    parts = [f"{name} {printable(text, 200)}" for name, text in found.items() if isinstance(text, str)]
    return ", ".join(parts) or "it gave no reason"
