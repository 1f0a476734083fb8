"""A string that does not show itself.

Thread: any (a frozen value).

Passwords, tokens and private keys live in `Secret` from the moment they are read. Only `reveal()` gives the text back,
and only the code that sends or loads it may call that. Pickling is refused: a pickle is a file with the secret in it.
"""

from __future__ import annotations

import hmac
from typing import NoReturn

MASK = "***"


class Secret:
    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

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
        raise TypeError("a Secret is not pickled: hand its source over (environment, file), not its text")
