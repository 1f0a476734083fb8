"""Leases on shared consumers: one for each key, counted, closed once."""

from __future__ import annotations

import threading
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from multilane.config.consumer import parse_consumer
from multilane.config.sharing_key import SharingKey, sharing_key
from multilane.engines.process.leases import Leases

KEYS = {
    name: sharing_key(parse_consumer({"bootstrap.servers": "localhost:9092", "group.id": name}), None) for name in "abc"
}


class Pooled:
    """A pool of numbers."""

    def __init__(self) -> None:
        self.numbers = count()
        self.closed: list[int] = []
        self.leases: Leases[int] = Leases(self.closed.append)

    def acquire(self, key: SharingKey):
        return self.leases.acquire(key, lambda: next(self.numbers))


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-1, 5))))
def test_counts_are_those_of_a_model(steps):
    """A step acquires (-1), or releases one of the leases of a key, also again."""
    pooled = Pooled()
    held = {name: [] for name in KEYS}
    given_back = {name: [] for name in KEYS}
    current: dict[str, int] = {}
    for name, which in steps:
        if which < 0:
            lease = pooled.acquire(KEYS[name])
            assert lease.is_new == (name not in current)
            assert current.setdefault(name, lease.consumer) == lease.consumer
            held[name].append(lease)
        elif held[name]:
            lease = held[name].pop(which % len(held[name]))
            assert lease.is_last == (not held[name])
            assert lease.release() == (not held[name])
            given_back[name].append(lease)
            if not held[name]:
                assert pooled.closed[-1] == current.pop(name)
        elif given_back[name]:
            assert not given_back[name][which % len(given_back[name])].release(), "a lease counts once"
        assert {KEYS[n]: c for n, c in current.items()} == pooled.leases.consumers
        assert all(pooled.leases.leases(KEYS[n]) == len(held[n]) for n in KEYS)
    assert len(pooled.closed) == len(set(pooled.closed)), "each is closed once"


def test_two_that_ask_at_once_get_one_consumer():
    pooled, key = Pooled(), KEYS["a"]
    together = threading.Barrier(16)
    leases = []

    def ask() -> None:
        together.wait()
        leases.append(pooled.acquire(key))

    threads = [threading.Thread(target=ask) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {lease.consumer for lease in leases} == {0}
    assert sum(lease.is_new for lease in leases) == 1
    threads = [threading.Thread(target=lease.release) for lease in leases for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pooled.closed == [0]
    assert pooled.acquire(key).consumer == 1
