"""Made-up orders for the demo, and the sum that tells whether all of them came back.

Thread: none (pure).

The orders are the same in every run. The sum does not depend on the order in which records are read, because partitions
are read side by side; a record that is lost, doubled or changed changes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final
from zlib import crc32

_SEED: Final = 2_026
_CUSTOMERS: Final = 500
_ITEMS: Final = (b"apples", b"bread", b"coffee", b"dates", b"eggs", b"figs", b"grapes", b"honey")
_MASK: Final = (1 << 64) - 1


@dataclass(slots=True)
class Tally:
    """How many records, and the sum over them."""

    records: int = 0
    checksum: int = 0

    def add(self, pairs: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        for key, value in pairs:
            self.records += 1
            self.checksum = (self.checksum + crc32(value or b"", crc32(key or b""))) & _MASK


def orders(count: int, tally: Tally) -> Iterator[tuple[bytes, bytes]]:
    """(customer, order) pairs; each is added to the tally as it is given out."""
    random = Random(_SEED)  # noqa: S311 - made-up orders, not secrets
    # A few customers order much, most of them little.
    customers = [b"customer-%03d" % min(int(random.expovariate(1 / 60)), _CUSTOMERS - 1) for _ in range(4_096)]
    checksum = 0
    for number in range(count):
        key = customers[(number * 7_919) % 4_096]
        value = b'{"order":%d,"item":"%s","qty":%d}' % (number, _ITEMS[number * 31 % 8], 1 + number % 9)
        checksum += crc32(value, crc32(key))
        yield key, value
    tally.records += count
    tally.checksum = (tally.checksum + checksum) & _MASK
