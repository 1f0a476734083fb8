"""When a request may be sent again."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.client.net.request_state import RequestBackoff, RequestState

STEADY = RequestBackoff(0.1, 1.0, jitter=0.0)


def test_back_off_doubles_up_to_its_maximum():
    assert [STEADY.delay(n) for n in range(7)] == pytest.approx([0.0, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_no_number_of_failures_overflows():
    assert RequestBackoff(0.1, 60.0, jitter=0.0).delay(100_000) == 60.0


@given(failures=st.integers(1, 1_000), draw=st.floats(0, 1))
def test_jitter_spreads_around_the_plain_delay(failures, draw):
    plain = STEADY.delay(failures)
    assert 0.8 * plain - 1e-9 <= RequestBackoff(0.1, 1.0, 0.2, lambda: draw).delay(failures) <= 1.2 * plain + 1e-9


def test_jitter_uses_what_is_drawn():
    assert RequestBackoff(1.0, 1.0, 0.2, lambda: 0.0).delay(1) == pytest.approx(0.8)
    assert RequestBackoff(1.0, 1.0, 0.2, lambda: 1.0).delay(1) == pytest.approx(1.2)


def test_one_request_at_a_time():
    state = RequestState(STEADY)
    assert state.may_send(0.0)
    state.sent()
    assert state.in_flight
    assert not state.may_send(1e9)
    assert state.wait(0.0) == math.inf
    state.succeeded()
    assert state.may_send(0.0)


def test_each_failure_waits_longer_and_success_forgets():
    state = RequestState(STEADY)
    waits = []
    for _ in range(3):
        state.sent()
        state.failed(10.0)
        waits.append(state.wait(10.0))
        assert not state.may_send(10.0)
        assert state.may_send(10.0 + waits[-1])
    assert waits == pytest.approx([0.1, 0.2, 0.4])
    assert state.failures == 3
    state.succeeded()
    assert (state.failures, state.wait(10.0)) == (0, 0.0)
