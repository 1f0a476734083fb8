"""The pattern of an error's text, by which errors are grouped: without the parts that differ from record to record.

Thread: none (pure).

Identifiers, offsets and times are removed; statuses and error codes stay, because 404, 500 and 503 are different
errors. A number counts as a code after a word such as `status` or `errno`; or if it has three digits, as HTTP statuses
have, and neither the word before it nor the word after it is a unit or a noun that it counts or names.
"""

from __future__ import annotations

import re
from typing import Final

NO_ERROR: Final = "(no error text)"
LONGEST_PATTERN: Final = 120

# Long hexadecimal names, identifiers, numbers. The context of a number decides whether it is kept.
_VARYING: Final = re.compile(r"\b(?:0x[0-9a-f]+|[0-9a-f]{8,}(?:-[0-9a-f]{4,})*)\b|[0-9]+", re.IGNORECASE)
_CODE_BEFORE: Final = re.compile(
    r"\b(?:http(?:/[0-9.#]+)?(?: error)?|status(?: ?code)?|(?:error|return|exit|response|result|sql) ?code|code|errno"
    r"|err|error|sqlstate|sqlcode)\s?[:=#(\[]?\s?[\"']?-?$",
    re.IGNORECASE,
)
_NAMED_BEFORE: Final = re.compile(
    r"(?:[\w\-./@#$%:]|\b(?:id|no|nr|number|order|offset|partition|record|item|customer|user|account|row|line|column|key"
    r"|sku|product|attempt|try|retry|batch|page|port|index|position|char|byte|size|length|count|of|by|for|after|than|at"
    r"|within|in|pid|thread|process|node|broker|version|invoice|payment|shipment|event|message|session|task|job)"
    r"[\"'(=:#]?\s?)$",
    re.IGNORECASE,
)
_COUNTED_BEHIND: Final = re.compile(
    r"(?:[\w\-/@#$%]|[.,:][0-9]|\s?(?:ms|s|seconds?|milliseconds?|minutes?|bytes?|kb|mb|gb|records?|rows?|items?|times"
    r"|attempts?|characters?|chars?|of)\b)",
    re.IGNORECASE,
)
_LONGEST_CODE: Final = 6
_CONTEXT: Final = 24
_STATUS: Final = re.compile(r"[1-5][0-9][0-9]")


def pattern_of(text: str) -> str:
    """The first line, without the parts that vary."""
    return _pattern(text, keeps_statuses=True)


def coarse_pattern_of(text: str) -> str:
    """The same without three-digit numbers: for errors whose numbers turn out not to be statuses."""
    return _pattern(text, keeps_statuses=False)


def _pattern(text: str, *, keeps_statuses: bool) -> str:
    first = next((line.strip() for line in text[: 16 * LONGEST_PATTERN].splitlines() if line.strip()), "")
    first = first[: 4 * LONGEST_PATTERN]

    def shown(found: re.Match[str]) -> str:
        before = first[max(0, found.start() - _CONTEXT) : found.start()]
        behind = first[found.end() : found.end() + _CONTEXT]
        return found[0] if _is_code(found[0], before, behind, keeps_statuses) else "#"

    return _VARYING.sub(shown, first)[:LONGEST_PATTERN] or NO_ERROR


def _is_code(number: str, before: str, behind: str, keeps_statuses: bool) -> bool:
    if len(number) > _LONGEST_CODE or not number.isdecimal():
        return False
    if _CODE_BEFORE.search(before) and not _COUNTED_BEHIND.match(behind):
        return True
    is_status = keeps_statuses and _STATUS.fullmatch(number) is not None
    return is_status and not _NAMED_BEFORE.search(before) and not _COUNTED_BEHIND.match(behind)
