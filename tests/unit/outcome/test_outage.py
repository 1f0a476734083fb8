"""An outage is told from poison, paused for, probed, and ended: the state machine alone."""

from __future__ import annotations

import pytest

from multilane.outcome.backoff import RetryDelay
from multilane.outcome.outage import SUSPICION, TRANSITIONS, Failure, Outage, OutageRules, OutageState

REFUSED = "ConnectionRefusedError"
BACKOFF = RetryDelay("exponential", 1.0, 8.0, 2.0)


def failure(key: object, error: str = REFUSED, line: str = "shop/orders.py:20") -> Failure:
    return Failure(error, line, key)


def outage(**rules: object) -> Outage:
    return Outage(OutageRules(**rules), BACKOFF)  # type: ignore[arg-type]


def suspected() -> Outage:
    made = outage()
    assert [made.failed(failure(n), 0, 0.1 * n) for n in range(6)] == [False] * 4 + [True] * 2
    assert made.state is OutageState.SUSPECTED
    return made


def opened(at: float = 2.0) -> Outage:
    made = suspected()
    made.look(0, at)
    assert made.state is OutageState.OPEN
    return made


def test_most_calls_that_fail_alike_over_several_keys_are_an_outage():
    made = opened()
    assert made.is_open
    assert str(made.kind) == "ConnectionRefusedError at shop/orders.py:20"
    assert made.failed(failure(9, "KeyError", "x.py:1"), 0, 2.1), "whatever fails now stays in place"


@pytest.mark.parametrize(
    "failures",
    [
        [failure("a") for _ in range(50)],  # one key, again and again
        [failure("a" if n % 2 else "b") for n in range(50)],
        [failure(n, f"Error{n % 5}", f"x.py:{n % 5}") for n in range(50)],  # many keys, and many reasons
    ],
)
def test_a_few_keys_or_many_reasons_are_none(failures):
    made = outage()
    assert not any(made.failed(one, 0, 0.01 * n) for n, one in enumerate(failures))
    assert made.state is OutageState.CLOSED


def test_as_long_as_others_succeed_it_is_a_poison():
    made = outage()
    assert not any(made.failed(failure(n), 2 * n, 0.01 * n) for n in range(100))


def test_failures_that_are_far_apart_are_no_outage_while_others_succeed():
    made = outage(window=10.0)
    assert not any(made.failed(failure(n), n, 5.0 * n) for n in range(20))


def test_failures_that_are_far_apart_are_an_outage_when_nothing_succeeded_meanwhile():
    """A record per minute, or one lane whose calls fail slowly: all of them went to the error topic."""
    made = outage(window=10.0)
    assert [made.failed(failure(n), 7, 60.0 * n) for n in range(6)] == [False] * 4 + [True] * 2
    made.look(7, 60.0 * 5 + SUSPICION)
    assert made.state is OutageState.OPEN


def window_fails(made: Outage, first: int, succeeded: int, now: float) -> list[bool]:
    """Two of its records are witnesses; the other 48 are echoes."""
    stays = [made.failed(failure(first + n), succeeded, now) for n in range(2)]
    return stays + [made.failed(failure(first + n), succeeded, now, is_echo=True) for n in range(2, 50)]


def test_windows_weigh_as_much_when_they_fail_as_when_they_succeed():
    """Four windows of five fail: only two records of each counted, but all 50 of the fifth."""
    made, succeeded = outage(), 0
    for n in range(12):
        succeeded += 50 * (n % 5 == 2)
        if n % 5 != 2:
            window_fails(made, 50 * n, succeeded, 0.1 * n)
    assert made.state is OutageState.SUSPECTED
    made.look(succeeded + 50, 0.7 + SUSPICION)
    assert made.state is OutageState.OPEN


def test_a_few_failed_windows_among_many_are_poison():
    made, succeeded = outage(), 0
    for n in range(50):
        succeeded += 50 * (n % 4 != 0)
        if n % 4 == 0:
            assert not any(window_fails(made, 50 * n, succeeded, 0.1 * n))


def test_records_that_failed_before_weigh_nothing():
    made = outage()
    assert not any(made.failed(failure(n), 0, 0.0, is_news=False) for n in range(20))
    assert made.state is OutageState.CLOSED
    assert suspected().failed(failure(7), 0, 0.6, is_news=False), "and stays in place all the same"


def test_one_line_with_errors_of_several_classes_is_alike():
    made = outage()
    for n in range(6):
        made.failed(failure(n, f"Timeout{n}", "http.py:7"), 0, 0.0)
    assert made.state is OutageState.SUSPECTED


def test_calls_that_take_too_long_are_alike():
    """No line of the function raised it: the call was abandoned."""
    made = outage()
    for n in range(6):
        made.failed(failure(n, "multilane.errors.ProcessingTimeout", ""), 0, 0.0)
    assert made.state is OutageState.SUSPECTED


def test_a_suspicion_is_cleared_when_others_succeed_meanwhile():
    """Failures may come faster than successes: among calls that began together they end first."""
    made = suspected()
    assert made.failed(failure(7), 0, 0.7)
    assert not made.failed(failure(8, "KeyError", "x.py:1"), 0, 0.7), "another error is another matter"
    made.look(0, 0.7)
    assert made.state is OutageState.SUSPECTED, "not before its time"
    made.look(20, 0.6 + SUSPICION)
    assert made.state is OutageState.CLOSED
    assert not made.failed(failure(9), 20, 2.0), "and it begins anew"


def test_it_closes_when_what_was_under_way_succeeds_after_all():
    made = opened()
    made.look(0, 2.5)
    assert made.state is OutageState.OPEN
    made.look(1, 2.5)
    assert made.state is OutageState.CLOSED


def test_one_probe_for_each_back_off():
    made = opened(at=2.0)
    assert not made.may_probe(2.9)
    for due, rest in ((3.0, 2.0), (5.0, 4.0), (9.0, 8.0), (17.0, 8.0)):
        assert made.may_probe(due)
        made.probe()
        assert not made.may_probe(due), "one at a time"
        assert made.probe_failed(due) == due + 1.5 * rest, "another record is tried before it comes again"
        assert made.next_at == due + rest
    assert made.probes == 4
    made.probe()
    made.probe_succeeded()
    assert made.state is OutageState.CLOSED


@pytest.mark.parametrize(("delay", "longest"), [(1.0, 10.0), (30.0, 30.0)])
def test_probes_stay_at_most_ten_seconds_apart_unless_the_first_delay_is_longer(delay, longest):
    made = Outage(OutageRules(), RetryDelay("exponential", delay, 300.0, 2.0))
    for n in range(6):
        made.failed(failure(n), 0, 0.1 * n)
    made.look(0, 2.0)
    for _ in range(8):
        now = made.next_at
        made.probe()
        made.probe_failed(now)
    assert made.next_at == now + longest


def test_a_probe_that_tells_nothing_is_soon_followed_by_another():
    made = opened()
    made.probe()
    made.probe_lost(50.0)
    assert made.state is OutageState.OPEN
    assert (made.probes, made.may_probe(50.1)) == (0, True)


def test_after_it_closed_it_opens_again_by_the_same_rule():
    made = opened()
    made.probe()
    made.probe_succeeded()
    assert [made.failed(failure(n), 5, 30.0) for n in range(6)] == [False] * 4 + [True] * 2


def test_a_back_off_of_zero_does_not_probe_without_end():
    made = Outage(OutageRules(), RetryDelay("fixed", 0.0))
    for n in range(6):
        made.failed(failure(n), 0, 0.0)
    made.look(0, 1.0)
    assert made.next_at == 2.0


def test_the_table_knows_every_state():
    assert TRANSITIONS.keys() == set(OutageState)
    with pytest.raises(AssertionError, match="from closed to probing"):
        outage().probe()
