"""The demo's orders, its sum and its verdicts, without a broker."""

from __future__ import annotations

from multilane.cli.demo import Finding
from multilane.cli.orders import Tally, orders


def test_orders_are_the_same_in_every_run():
    first, second = Tally(), Tally()
    assert list(orders(2_000, first)) == list(orders(2_000, second))
    assert first == second
    assert first.records == 2_000


def test_the_sum_does_not_depend_on_the_order_of_reading():
    written, read = Tally(), Tally()
    pairs = list(orders(1_000, written))
    read.add(reversed(pairs))
    assert read == written


def test_the_sum_notices_loss_repetition_and_change():
    written = Tally()
    pairs = list(orders(1_000, written))
    key, value = pairs[500]
    for wrong in (pairs[1:], [*pairs, pairs[0]], [*pairs[1:], pairs[1]], [*pairs[:500], (value, key), *pairs[501:]]):
        read = Tally()
        read.add(wrong)
        assert read != written


def test_a_finding_holds_when_both_are_equal():
    assert Finding("records", 3, 3).holds
    assert not Finding("records", 3, 2).holds
