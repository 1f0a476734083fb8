"""Where SASL conversations come from: passwords at once, tokens from the user's function.

Thread: network, but the token function runs on a thread of the pool that is handed in: it may take seconds.

A token is kept until shortly before it expires and shared by all connections of the network thread. A new one is asked
for in good time, so a function that fails then has failed for nobody yet: the old token serves on.
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
# A token that is about to expire would be refused on its way.
_EXPIRY_MARGIN: Final = 5.0
# A new one is asked for when this much of its life is over, while the old one still serves.
_REFRESH_SHARE: Final = 0.8
# And when that failed, again after this many seconds.
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
        """A new conversation; None while the token is on its way (`wake` is called when it is here)."""
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
        serves_until = -math.inf if self._token is None else self._token.expires_at - _EXPIRY_MARGIN
        if not self._fetching.done():
            return self._token if now < serves_until else None
        fetched, self._fetching = self._fetching, None
        try:
            self._token = _result(fetched)
        except SaslError as error:
            if now >= serves_until:
                raise
            log.warning("%s; the current token is valid for another %.0f s", error, serves_until - now)
            self._refresh_at = min(now + _REFRESH_AGAIN, serves_until)
            return self._token
        self._refresh_at = now + _REFRESH_SHARE * (self._token.expires_at - now)
        return self._token


def _result(fetched: Future[Token]) -> Token:
    """The provider's token. Its exception may hold a credential in its text, so only its type is told."""
    error = fetched.exception()
    if error is not None:
        raise SaslError(f"sasl.oauthbearer.token.provider raised {type(error).__name__}")
    token = fetched.result()
    if not isinstance(token, Token):
        raise SaslError(f"sasl.oauthbearer.token.provider returned {type(token).__name__}, not a Token")
    return token
