"""The loggers of this library, whose log records contain no raw foreign text.

Thread: any.

The arguments of a log call (error texts, names, keys) come from records, brokers and users. Every argument is escaped
and cut before a handler sees it, and error texts in tracebacks are escaped. A handler of the application still gets the
exception itself in `exc_info`.
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
    """Like `logging.getLogger`, with foreign text escaped. Every logger of this library comes from here."""
    found = logging.getLogger(name)
    found.addFilter(_ESCAPE)
    return found


class _Escape(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple):
            record.args = tuple(map(_safe, record.args))
        elif isinstance(record.args, Mapping):  # a single mapping, which logging unpacks
            record.args = {name: _safe(value) for name, value in record.args.items()}
        if record.exc_info and record.exc_info[1] is not None and not record.exc_text:
            record.exc_text = stack_of(record.exc_info[1])
        return True


def _safe(value: object) -> object:
    """Numbers stay numbers, numpy's too: the format may use %d."""
    return value if value is None or isinstance(value, Number | Indented) else escaped(text_of(value), _LONGEST)


class Indented(str):
    """Lines that are already escaped and indented."""

    __slots__ = ()


def indented(text: str, by: str = "    ") -> Indented:
    """Appends already escaped text to a log line, each of its lines indented."""
    return Indented("".join(f"\n{by}{line}" for line in text.split("\n")))


_ESCAPE: Final = _Escape()
