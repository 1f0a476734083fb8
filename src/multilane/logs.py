"""The loggers of this library, whose records hold no raw foreign text.

Thread: any.

What a log call is given (error texts, names, keys) comes from records, brokers and users. Every argument is escaped and
cut before a handler sees it, and a traceback is written with its error texts escaped. A handler of the application
still finds the exception itself in `exc_info`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from numbers import Number
from typing import Final

from multilane.escaping import escaped, text_of
from multilane.stacks import stack_of

_LONGEST: Final = 8_000  # characters of one argument


def logger(name: str) -> logging.Logger:
    """`logging.getLogger`, with foreign text escaped. Use it for every logger of this library."""
    found = logging.getLogger(name)
    found.addFilter(_ESCAPE)
    return found


class _Escape(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_safe, record.args))
        elif isinstance(record.args, Mapping):  # a single one, which logging unpacks
            record.args = {name: _safe(value) for name, value in record.args.items()}
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = stack_of(record.exc_info[1])
        return True


def _safe(value: object) -> object:
    """Numbers as they are, also numpy's: they may be wanted as %d."""
    return value if value is None or isinstance(value, Number | Indented) else escaped(text_of(value), _LONGEST)


class Indented(str):
    """Lines of our own making: already escaped, each behind the first one indented."""

    __slots__ = ()


def indented(text: str, by: str = "    ") -> Indented:
    """Text whose every line is escaped already, to be put behind a log line."""
    return Indented("".join(f"\n{by}{line}" for line in text.split("\n")))


_ESCAPE: Final = _Escape()
