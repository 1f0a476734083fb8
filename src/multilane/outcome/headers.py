"""The headers that a record carries through retry and error topics: validated when read, replaced where they stand.

Thread: none (pure).

Names are case-sensitive. If a name of ours appears several times, the last header counts; writing leaves one, at the
first one's position, so headers do not accumulate however often a record is retried. All other headers keep their
order, their duplicates and their bytes. Never trusts a value: an invalid number counts as 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from multilane.stacks import class_of, message_of, stack_of
from multilane.wire.records.record import Headers

RETRY_COUNT: Final = "X-RetryCount"
ERROR_COUNT: Final = "X-ErrorCount"
TARGET_TOPIC: Final = "X-TargetTopic"
ERROR_MESSAGE: Final = "X-ErrorMessage"
ERROR_CLASS: Final = "X-ErrorClass"
ERROR_STACK: Final = "X-ErrorStack"
SUSPECTED_POISON: Final = "X-SuspectedPoison"  # how often the process died while it handled the record

NOT_ATTEMPTED: Final = -1  # a retry count: the record followed its key and was not handled yet
ERROR_MESSAGE_BYTES: Final = 1_000
ERROR_CLASS_BYTES: Final = 250
ERROR_STACK_BYTES: Final = 4_000

_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,10}")
_LARGEST: Final = (1 << 31) - 1
_LONGEST_TOPIC: Final = 249


def last_value(headers: Headers, name: str) -> bytes | None:
    """The value that counts; None if there is no such header, or if it is null."""
    return next((value for key, value in reversed(headers) if key == name), None)


def retry_count(headers: Headers) -> int:
    """-1, or how many attempts from the retry topic have failed."""
    return _count(headers, RETRY_COUNT, lowest=NOT_ATTEMPTED)


def error_count(headers: Headers) -> int:
    return _count(headers, ERROR_COUNT, lowest=0)


def _count(headers: Headers, name: str, lowest: int) -> int:
    value = last_value(headers, name)
    if value is None or _NUMBER.fullmatch(value) is None:
        return 0
    count = int(value)
    return count if lowest <= count <= _LARGEST else 0


def target_topic(headers: Headers) -> str | None:
    """The topic that the header names, if that is a possible name. The configuration decides whether it may be used."""
    value = last_value(headers, TARGET_TOPIC)
    if not value or len(value) > _LONGEST_TOPIC:
        return None
    try:
        return value.decode("ascii")
    except UnicodeDecodeError:
        return None


def error_message(headers: Headers) -> str | None:
    return _text(headers, ERROR_MESSAGE)


def error_stack(headers: Headers) -> str | None:
    return _text(headers, ERROR_STACK)


def _text(headers: Headers, name: str) -> str | None:
    value = last_value(headers, name)
    return None if value is None else value.decode("utf-8", "replace")


def replaced(headers: Headers, changes: Mapping[str, bytes | None] | Mapping[str, bytes]) -> Headers:
    """The headers with `changes`: a value replaces the first header of its name, or is appended; None removes the
    header. All others stay as they are."""
    left: dict[str, bytes | None] = dict(changes)
    kept: list[tuple[str, bytes | None]] = []
    for name, value in headers:
        if name not in changes:
            kept.append((name, value))
        elif (fresh := left.pop(name, None)) is not None:
            kept.append((name, fresh))
    kept += [(name, value) for name, value in left.items() if value is not None]
    return tuple(kept)


def number(value: int) -> bytes:
    return b"%d" % min(value, _LARGEST)


def described(error: BaseException | str, note: str = "") -> bytes:
    """Type and text of an error for the header, then a note that a long text never cuts off."""
    ending = f"; {note}".encode() if note else b""
    return _cut(_type_and_text(error), ERROR_MESSAGE_BYTES - len(ending)) + ending


def error_changes(error: BaseException, note: str = "", *, with_stack: bool = True) -> dict[str, bytes | None]:
    """The headers that describe the error: message, class and, if wanted, the stack."""
    return {
        ERROR_MESSAGE: described(error, note),
        ERROR_CLASS: _cut(class_of(error), ERROR_CLASS_BYTES),
        ERROR_STACK: stack_bytes(error) if with_stack else None,
    }


def stack_bytes(error: BaseException) -> bytes:
    """At most `ERROR_STACK_BYTES`, even if the text is not ASCII, and without our own outer frames."""
    stack = stack_of(error, ERROR_STACK_BYTES, hides_ours=True).encode("utf-8", "replace")
    return stack[-ERROR_STACK_BYTES:].decode("utf-8", "ignore").encode()


def without_stack(headers: Headers) -> Headers:
    return replaced(headers, {ERROR_STACK: None})


def _type_and_text(error: BaseException | str) -> str:
    if isinstance(error, str):
        return error
    kind, text = type(error).__qualname__, message_of(error)
    return f"{kind}: {text}" if text else kind


def _cut(text: str, size: int) -> bytes:
    """At most `size` bytes of UTF-8, whole characters; a lone surrogate becomes a question mark."""
    whole = text[:size].encode("utf-8", "replace")
    return whole if len(whole) <= size else whole[:size].decode("utf-8", "ignore").encode()
