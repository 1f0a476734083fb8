"""Starts SASL logins: with a password at once, with a token from the user's function.

Thread: network. The token function may take seconds, so it runs in the given thread pool.

Owns the current token, which all connections of the network thread share until shortly before it expires. Fetches a new
token early, so that a failing function harms no connection yet: the old token stays in use.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final

from multilane.config.security import SaslLogin, Token, TokenLogin
from multilane.errors import SaslError
from multilane.logs import logger
from multilane.wire.sasl import Conversation, begin

log = logger(__name__)

_NONCE_BYTES: Final = 24
# A token that is about to expire could expire before the broker checks it.
_EXPIRY_MARGIN: Final = 5.0
# A new token is fetched after this share of the old one's lifetime.
_REFRESH_SHARE: Final = 0.8
# Seconds until the next attempt after a failed fetch.
_REFRESH_AGAIN: Final = 10.0


class Login:
    def __init__(
        self, config: SaslLogin, pool: Callable[[], Executor], wall: Callable[[], float], wake: Callable[[], None]
    ) -> None:
        self._config = config
        self._pool = pool
        self._wall = wall
        self._wake = wake
        self._token: Token | None = None
        self._refresh_at = 0.0
        self._fetching: Future[Token] | None = None

    @property
    def mechanism(self) -> str:
        return self._config.mechanism

    def begin(self) -> Conversation | None:
        """A new SASL conversation; None while the token is being fetched (`wake` is called when it has arrived)."""
        if not isinstance(self._config, TokenLogin):
            return begin(self._config, nonce=secrets.token_urlsafe(_NONCE_BYTES))
        token = self._fresh_token(self._config)
        return None if token is None else begin(self._config, nonce="", token=token)

    def _fresh_token(self, login: TokenLogin) -> Token | None:
        now = self._wall()
        if self._token is not None and now < self._refresh_at:
            return self._token
        if self._fetching is None:
            self._fetching = self._pool().submit(login.provider)
            self._fetching.add_done_callback(lambda _: self._wake())
        valid_until = -math.inf if self._token is None else self._token.expires_at - _EXPIRY_MARGIN
        if not self._fetching.done():
            return self._token if now < valid_until else None
        fetched, self._fetching = self._fetching, None
        try:
            self._token = _result(fetched)
        except SaslError as error:
            if now >= valid_until:
                raise
            log.warning("%s; the current token is valid for another %.0f s", error, valid_until - now)
            self._refresh_at = min(now + _REFRESH_AGAIN, valid_until)
            return self._token
        self._refresh_at = now + _REFRESH_SHARE * (self._token.expires_at - now)
        return self._token


def _result(fetched: Future[Token]) -> Token:
    """The provider's token. The text of its exception may contain a credential, so only its type is reported."""
    error = fetched.exception()
    if error is not None:
        raise SaslError(f"sasl.oauthbearer.token.provider raised {type(error).__name__}")
    token = fetched.result()
    if not isinstance(token, Token):
        raise SaslError(f"sasl.oauthbearer.token.provider returned {type(token).__name__}, not a Token")
    return token
