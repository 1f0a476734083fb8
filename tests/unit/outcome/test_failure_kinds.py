"""Failures by kind, and whether they look like an outage or poison."""

from __future__ import annotations

import json

import pytest

from multilane.outcome.failure_kinds import (
    MOST_KEYS,
    MOST_KINDS,
    OTHERS,
    QUIET_SECONDS,
    FailureKind,
    FailureKinds,
    Sighting,
    looks_like,
    sighting_from,
)

KIND = FailureKind("orders", "ValueError", "shop/orders.py:20")


def seen(count=1, keys=(1,), kind=KIND):
    return Sighting(kind, count, frozenset(keys), "no stock", "orders-3@17")


def test_only_the_first_of_a_kind_is_new():
    kinds = FailureKinds()
    assert kinds.add(seen(), 0.0)
    assert not kinds.add(seen(), 1.0)
    assert kinds.add(seen(kind=KIND._replace(line="shop/orders.py:21")), 1.0)
    assert kinds.add(seen(kind=KIND._replace(error="KeyError")), 1.0)
    assert kinds.add(seen(kind=KIND._replace(consumer="payments")), 1.0)


def test_a_kind_that_was_quiet_for_long_is_new_again():
    kinds = FailureKinds()
    kinds.add(seen(), 0.0)
    assert not kinds.add(seen(), QUIET_SECONDS - 1)
    assert kinds.add(seen(), 2 * QUIET_SECONDS)


def test_counts_and_keys_are_those_since_the_last_time():
    kinds = FailureKinds()
    kinds.add(seen(2, (1, 2)), 0.0)
    kinds.add(seen(3, (2, 3)), 0.0)
    [taken] = kinds.take()
    assert (taken.count, taken.keys) == (5, {1, 2, 3})
    assert kinds.take() == []
    kinds.add(seen(), 0.0)
    assert kinds.take()[0].count == 1
    assert kinds.totals == {KIND: 6}


def test_the_table_is_bounded_and_counts_all():
    kinds = FailureKinds()
    for number in range(3 * MOST_KINDS):
        kinds.add(seen(keys=range(3 * MOST_KEYS), kind=FailureKind("orders", f"E{number}", "")), 0.0)
    taken = kinds.take()
    assert len(taken) <= MOST_KINDS + 1
    assert sum(one.count for one in taken) == 3 * MOST_KINDS
    assert taken[0].kind.error == OTHERS
    assert all(len(one.keys) <= MOST_KEYS for one in taken)
    for number in range(3 * MOST_KINDS):
        kinds.add(seen(kind=FailureKind("orders", f"F{number}", "")), 2 * QUIET_SECONDS)
    assert len(kinds.totals) <= 2 * MOST_KINDS + 1


def test_a_sighting_travels_as_json():
    made = seen(4, (7, 9))
    assert sighting_from(json.loads(json.dumps(made.to_json()))) == made


@pytest.mark.parametrize("junk", [{}, {"kind": 1}, {"kind": ["a"], "count": 1, "keys": []}, 7])
def test_junk_is_refused(junk):
    with pytest.raises((KeyError, TypeError, ValueError)):
        sighting_from(junk)


def test_an_outage_is_most_calls_failing_alike_for_many_keys():
    text = looks_like([seen(400, range(200)), seen(10, (1,), KIND._replace(error="KeyError"))], 20)
    assert text.startswith("looks like an outage: 95% of calls fail")
    assert "200 keys" in text


def test_poison_is_a_few_keys_failing_while_others_succeed():
    assert looks_like([seen(8, (1, 2))], 500).startswith("looks like poison: only 2 keys fail (8 failures) while 500")
    assert looks_like([seen(4, (1,))], 19).startswith("looks like poison: only one key fails")


@pytest.mark.parametrize(
    ("found", "succeeded"),
    [
        ([], 100),
        ([seen(2, (1, 2))], 0),  # too few to tell
        ([seen(100, range(100))], 150),  # many keys, and many succeed
        ([seen(20, range(20), KIND._replace(error=f"E{n}")) for n in range(5)], 0),  # none alike
        ([seen(50, (1,))], 0),  # one key alone: nothing else to compare it with
    ],
)
def test_else_nothing_is_claimed(found, succeeded):
    assert not looks_like(found, succeeded)
