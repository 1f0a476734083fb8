"""Shared consumers by sharing key, each for as long as somebody has a lease on it.

Thread: any; a lock guards the table.

Whoever asks first for a key gets a new consumer, whoever asks later or at the same time gets the same one. The last
release takes it out of the table and closes it, so the next one who asks gets a new one. Owns the count of leases.
Never waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from multilane.config.sharing_key import SharingKey

C = TypeVar("C")


@dataclass(slots=True, eq=False)
class _Leased(Generic[C]):
    consumer: C
    leases: int


class Leases(Generic[C]):
    def __init__(self, close: Callable[[C], object]) -> None:
        """`close` is called without the lock, once for each consumer, after its last lease."""
        self._close = close
        self._lock = threading.Lock()
        self._leased: dict[SharingKey, _Leased[C]] = {}

    @property
    def consumers(self) -> Mapping[SharingKey, C]:
        with self._lock:
            return {key: leased.consumer for key, leased in self._leased.items()}

    def acquire(self, key: SharingKey, make: Callable[[], C]) -> Lease[C]:
        """`make` is called with the lock held if there is no consumer for this key."""
        with self._lock:
            leased = self._leased.get(key)
            is_new = leased is None
            if leased is None:
                leased = self._leased[key] = _Leased(make(), 0)
            leased.leases += 1
            return Lease(self, key, leased.consumer, is_new=is_new)

    def release(self, lease: Lease[C]) -> bool:
        """Returns whether it was the last one. A lease counts once."""
        with self._lock:
            if lease.is_released:
                return False
            lease.is_released = True
            leased = self._leased[lease.key]
            leased.leases -= 1
            if leased.leases:
                return False
            del self._leased[lease.key]
        self._close(leased.consumer)
        return True

    def leases(self, key: SharingKey) -> int:
        with self._lock:
            leased = self._leased.get(key)
            return 0 if leased is None else leased.leases


class Lease(Generic[C]):
    """One trigger's share of a consumer."""

    __slots__ = ("_pool", "consumer", "is_new", "is_released", "key")

    def __init__(self, pool: Leases[C], key: SharingKey, consumer: C, *, is_new: bool) -> None:
        self._pool = pool
        self.key = key
        self.consumer = consumer
        self.is_new = is_new
        self.is_released = False  # changed by the pool, under its lock

    @property
    def is_last(self) -> bool:
        """Whether its release would close the consumer now."""
        return not self.is_released and self._pool.leases(self.key) == 1

    def release(self) -> bool:
        return self._pool.release(self)
