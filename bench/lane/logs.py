"""The logs that lanes are measured on: every record's key and partition, and the least time that a log takes.

Thread: none (pure).

Everything is drawn from a fixed seed: a log has the same records in the same order in every run. A key goes to the
partition that Kafka's own producer chooses (murmur2): the low bits of that hash are equal for all keys of a partition,
and a system that spreads keys over lanes has to cope with that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

KEYS: Final = 100_000
VALUE_BYTES: Final = 100
CHUNK: Final = 150_000
_SEED: Final = 11
_WORD: Final = 0xFFFFFFFF

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Log:
    """One topic; its name has all its parameters. `skew` is Zipf's exponent; 0 makes all keys equally frequent."""

    partitions: int
    records: int
    skew: float = 0.0

    @property
    def topic(self) -> str:
        return f"bench-lanes-{self.partitions}-{'zipf' if self.skew else 'uniform'}-{self.records}"

    def draws(self) -> Iterator[Numbers]:
        """The numbers of the records' keys, in write order."""
        rng = np.random.default_rng(_SEED)
        edges = np.cumsum(shares(self.skew))
        left = self.records
        while left:
            count = min(CHUNK, left)
            drawn = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
            yield np.minimum(drawn, KEYS - 1)
            left -= count


@dataclass(frozen=True, slots=True)
class Load:
    """The contents of one partition of a log."""

    records: int
    hottest: int  # records of the most frequent key


def shares(skew: float) -> npt.NDArray[np.float64]:
    """Each key's share of the records."""
    weights = 1.0 / np.arange(1, KEYS + 1) ** skew
    return np.asarray(weights / weights.sum())


def records_lasting(seconds: float, latency: float, skew: float) -> int:
    """As many records as keep the hottest key's lane busy for that long."""
    return int(np.ceil(seconds / latency / shares(skew)[0]))


def loads(log: Log) -> list[Load]:
    counts = np.zeros(KEYS, np.int64)
    for drawn in log.draws():
        counts += np.bincount(drawn, minlength=KEYS)
    places = partitions_of_keys(log.partitions)
    return [
        Load(int(counts[places == number].sum()), int(counts[places == number].max(initial=0)))
        for number in range(log.partitions)
    ]


def drain_seconds(found: list[Load], lanes: int, latency: float) -> float:
    """The least time to handle a log: per partition, its lanes' share or the sequence of its hottest key."""
    return max(max(load.records * latency / lanes, load.hottest * latency) for load in found)


# --- keys ------------------------------------------------------------------------------------------------------------


def key_name(number: int) -> bytes:
    return b"key-%06d" % number


def partitions_of_keys(partitions: int) -> Numbers:
    hashes = np.array([murmur2(key_name(number)) for number in range(KEYS)], np.int64)
    return np.asarray((hashes & 0x7FFFFFFF) % partitions)


def murmur2(key: bytes) -> int:
    """Kafka's hash of a key, as an unsigned number of 32 bits."""
    mixer = 0x5BD1E995
    found = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for word in np.frombuffer(key[:whole], "<u4").tolist():
        mixed = word * mixer & _WORD
        found = found * mixer & _WORD ^ ((mixed ^ mixed >> 24) * mixer & _WORD)
    if rest := key[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * mixer & _WORD
    found = (found ^ found >> 13) * mixer & _WORD
    return found ^ found >> 15
