"""A string that is never displayed, and addresses with their credentials masked.

Thread: any (a frozen value).

Passwords, tokens and private keys are held in a `Secret` from the moment they are read. Only `reveal()` returns the
text, and only the code that sends or loads it may call that. Pickling is refused: the pickle would contain the secret.
"""

from __future__ import annotations

import hmac
import re
from typing import Final, NoReturn

MASK = "***"
_LOGIN: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*)://([^\s?#'\"<>]*)@")
_PARAMETER: Final = re.compile(
    r"([?&;][\w.-]*(?:pass|pwd|secret|token|key|sig|cred|auth|sas)[\w.-]*=)[^\s&;#'\"<>]+", re.IGNORECASE
)
_CONTAINERS: Final = frozenset({"abfs", "abfss", "wasb", "wasbs"})  # container@account: not a login


class Secret:
    __slots__ = ("_text", "source")

    def __init__(self, text: str, source: str | None = None) -> None:
        """`source`: how the configuration names the text, as in `${NAME}`; it may be shown and sent."""
        self._text = text
        self.source = source

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Secret({MASK})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return format(MASK, spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled: pass on its source (environment, file), not its text")


def without_credentials(text: str) -> str:
    """The text with the logins and secret parameters of all addresses masked.

    A secret may contain a raw `/` or `@`, so everything between `://` and the last `@` before the query is masked.
    """
    return _PARAMETER.sub(rf"\1{MASK}", _LOGIN.sub(_masked_login, text)) if "://" in text else text


def _masked_login(found: re.Match[str]) -> str:
    scheme, login = found.groups()
    is_container = scheme.lower() in _CONTAINERS and not set(":/@") & set(login)
    return found[0] if is_container else f"{scheme}://{MASK}@"
