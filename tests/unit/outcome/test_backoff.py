"""When a retry copy is due."""

from __future__ import annotations

import subprocess
import sys

import pytest

from multilane.outcome.backoff import RetryDelay, bounded, due, seed_of

SEED = seed_of("orders.retry", 3, 17)


@pytest.mark.parametrize("count", [0, 1, 7, 2**31 - 1])
def test_fixed(count):
    assert due(RetryDelay("fixed", delay=2.5), 1_000, count, SEED) == 3_500


@pytest.mark.parametrize(("count", "seconds"), [(0, 1), (1, 3), (2, 9), (3, 20), (2**31 - 1, 20)])
def test_exponential_up_to_the_cap(count, seconds):
    backoff = RetryDelay("exponential", delay=1, multiplier=3, maximum=20)
    assert due(backoff, 5_000, count, SEED) == 5_000 + seconds * 1_000


@pytest.mark.parametrize(
    ("backoff", "seconds"),
    [
        (RetryDelay("exponential", delay=0), 0),
        (RetryDelay("exponential", delay=4, multiplier=1, maximum=60), 4),
        (RetryDelay("exponential", delay=90, maximum=60), 90),
    ],
)
def test_odd_settings(backoff, seconds):
    assert due(backoff, 0, 5, SEED) == seconds * 1_000


def test_who_only_follows_its_key_is_due_at_once():
    assert due(RetryDelay(delay=100, jitter=0.5), 1_000, -1, SEED) == 1_000


def test_jitter_spreads_within_its_share():
    backoff = RetryDelay("fixed", delay=10, jitter=0.2)
    found = {due(backoff, 0, 0, seed_of("t", 0, n)) for n in range(2_000)}
    assert 8_000 <= min(found) < 8_100
    assert 11_900 < max(found) <= 12_000
    assert len(found) > 1_000


def test_a_restart_computes_the_same():
    """A hash that differs from process to process would move the due time at every restart."""
    code = "from multilane.outcome.backoff import seed_of; print(seed_of('orders.retry', 3, 17))"
    seeds = {
        subprocess.run([sys.executable, "-c", code], env={"PYTHONHASHSEED": h}, capture_output=True, check=True).stdout
        for h in ("1", "2")
    }
    assert seeds == {b"%d\n" % SEED}


def test_a_clock_that_is_wrong_does_not_hold_a_record_for_years():
    backoff = RetryDelay("exponential", delay=1, maximum=20, jitter=0.5)
    in_a_year = 365 * 86_400_000
    assert bounded(backoff, due(backoff, in_a_year, 0, SEED), 1_000) == 31_000
    assert bounded(backoff, 1_500, 1_000) == 1_500
    assert bounded(RetryDelay("fixed", delay=2), in_a_year, 0) == 2_000
