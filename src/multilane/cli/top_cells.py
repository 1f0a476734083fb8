"""The words and numbers of `multilane top`: states, durations, rates.

Thread: none (pure).
"""

from __future__ import annotations

import math
from typing import Final

from multilane.group.comparison import Movement, PartitionRow

_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


def state(row: PartitionRow) -> str:
    """The verdict in words, with the offset to inspect."""
    match row.verdict:
        case Movement.STALLED:
            return f"stalled {brief(row.still)}" + ("" if row.committed is None else f" at {row.committed}")
        case Movement.HELD:
            return f"held {brief(row.still)} by {row.committed}"
        case Movement.WAITING if row.still:
            return f"waiting {brief(row.still)}"
        case Movement.EXPIRED:
            return "expired: the log begins later"
        case Movement.REWOUND:
            return "rewound: the offset moved back"
        case _:
            return row.verdict.value


def brief(seconds: float) -> str:
    """A duration in its two largest units: 45 s, 2 m 5 s, 3 h 10 m."""
    left = round(seconds)
    if not left:
        return "0 s" if seconds < 0.05 else f"{seconds:.1f} s"
    counts = []
    for length, unit in _UNITS:
        count, left = divmod(left, length)
        counts.append((count, unit))
    first = next(number for number, (count, _) in enumerate(counts) if count)
    return " ".join(f"{count} {unit}" for count, unit in counts[first : first + 2] if count)


def drained(row: PartitionRow) -> str:
    return "-" if row.verdict is Movement.STALLED else until_drained(row.lag, row.drain)


def until_drained(lag: int | None, drain: float | None) -> str:
    if drain is None or not lag:
        return "-"
    return "never" if math.isinf(drain) else brief(drain)


def amount(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def rate_text(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"
