"""The breaker: when it opens, that its window slides, and that it stays open."""

from __future__ import annotations

import sys

import pytest

from multilane.outcome.breaker import Breaker


def test_opens_above_its_share():
    breaker = Breaker(share=0.5, window=60, minimum=10)
    assert not breaker.note(5, 5, 0.0)
    assert not breaker.is_open
    assert breaker.note(0, 1, 1.0)
    assert breaker.is_open
    assert breaker.reason == "6 of 11 records failed within 60 s: more than 50%"


def test_few_records_prove_nothing():
    breaker = Breaker(share=0.1, window=60, minimum=100)
    assert not breaker.note(0, 99, 0.0)
    assert breaker.note(0, 1, 0.0)


def test_successes_alone_never_open_it():
    """The window may hold too many failures while it is still too short; the next failure decides, not a success."""
    breaker = Breaker(share=0.0, window=10, minimum=3)
    breaker.note(0, 2, 0.0)
    assert not breaker.note(5, 0, 0.1)
    assert breaker.note(0, 1, 0.2)


def test_old_failures_slide_out():
    breaker = Breaker(share=0.5, window=20, minimum=10)
    breaker.note(0, 9, 0.0)
    assert not breaker.note(8, 1, 20.0)
    assert not breaker.is_open
    assert breaker.note(0, 9, 39.0)


def test_a_long_silence_empties_the_window():
    breaker = Breaker(share=0.5, window=20, minimum=2)
    breaker.note(0, 1, 0.0)
    assert not breaker.note(0, 1, 1e9)


def test_it_opens_once_and_stays_open():
    breaker = Breaker(share=0.5, window=10, minimum=1)
    assert breaker.note(0, 1, 0.0)
    assert not breaker.note(1_000, 1, 5_000.0), "it opened already"
    assert breaker.is_open
    assert breaker.reason


def test_memory_is_bounded():
    breaker = Breaker(share=1.0, window=10, minimum=1)
    size = len(breaker._counts)
    for n in range(100_000):
        breaker.note(1, 1, n * 0.01)
    assert len(breaker._counts) == size
    assert sys.getsizeof(breaker._counts) < 1_000


def test_nothing_is_not_an_outcome():
    assert not Breaker(share=0.0, window=1, minimum=1).note(0, 0, 0.0)


@pytest.mark.parametrize(("share", "window", "minimum"), [(-0.1, 1, 1), (1.1, 1, 1), (0.5, 0, 1), (0.5, 1, 0)])
def test_senseless_settings_are_refused(share, window, minimum):
    with pytest.raises(ValueError, match="share"):
        Breaker(share, window, minimum)
