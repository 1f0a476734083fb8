"""When a retry copy is due: computed from the copy alone, so that a restart computes the same time.

Thread: none (pure).

The jitter comes from the copy's position in the log, not from a random number. Timestamps of records are ms since 1970;
times in the configuration are seconds. Never waits longer than the longest delay, whatever a record's timestamp claims.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log
from typing import Final, Literal, Protocol
from zlib import crc32

_RANGE: Final = 1 << 32


class BackoffSettings(Protocol):
    """The back-off from the configuration."""

    @property
    def kind(self) -> str: ...
    @property
    def delay(self) -> float: ...
    @property
    def maximum(self) -> float: ...
    @property
    def multiplier(self) -> float: ...
    @property
    def jitter(self) -> float: ...


@dataclass(frozen=True, slots=True)
class RetryDelay:
    """`jitter` is the share by which a delay may be shorter or longer: with 0.2, 10 s becomes 8 to 12 s."""

    kind: Literal["fixed", "exponential"] = "fixed"
    delay: float = 1.0
    maximum: float = 60.0
    multiplier: float = 2.0
    jitter: float = 0.0


def seed_of(topic: str, partition: int, offset: int) -> int:
    """The same number for the same record, in every process."""
    return crc32(f"{topic}/{partition}/{offset}".encode())


def due(backoff: BackoffSettings, record_timestamp_ms: int, retry_count: int, seed: int) -> int:
    """When a copy may be handled. A copy that was not attempted yet (-1) only follows its key and is due at once."""
    if retry_count < 0:
        return record_timestamp_ms
    share = 1.0 + backoff.jitter * (2.0 * (seed % _RANGE) / _RANGE - 1.0)
    return record_timestamp_ms + round(max(0.0, _delay(backoff, retry_count) * share) * 1_000)


def bounded(backoff: BackoffSettings, due_ms: int, received_ms: int) -> int:
    """`due_ms`, but no later than the longest delay after the record was received: its timestamp may be wrong."""
    longest = backoff.delay if backoff.kind == "fixed" else max(backoff.delay, backoff.maximum)
    return min(due_ms, received_ms + round(longest * (1.0 + backoff.jitter) * 1_000))


def _delay(backoff: BackoffSettings, retry_count: int) -> float:
    if backoff.kind == "fixed" or backoff.delay <= 0 or backoff.multiplier <= 1:
        return backoff.delay
    ceiling = max(backoff.delay, backoff.maximum)
    # Compares logarithms: a forged count must not overflow the power.
    if retry_count * log(backoff.multiplier) >= log(ceiling / backoff.delay):
        return ceiling
    return float(backoff.delay * backoff.multiplier**retry_count)
