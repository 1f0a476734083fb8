"""No record of an outage is given up while it lasts, and no poison stays forever, whatever the order of events."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lane_world import record_of
from multilane.outcome.backoff import RetryDelay
from multilane.outcome.giving_up import FIRST_ALIKE, LONGEST_STAY, SHORT_STAY, GivingUp

ERRORS = {"refused": ConnectionRefusedError("no"), "slow": TimeoutError("slow"), "bad": ValueError("bad")}
SIGNS = ("refused", "slow")  # of an outage
LONGEST_BACKOFF = 10.0

steps = st.lists(
    st.one_of(
        st.tuples(st.just("fail"), st.integers(0, 4), st.sampled_from(sorted(ERRORS))),
        st.tuples(st.just("succeed"), st.integers(1, 3), st.none()),
        st.tuples(st.just("wait"), st.integers(0, 700), st.none()),
    ),
    max_size=60,
)


class Model:
    """Since when each record has failed, with how many successes before, and what has been given up since one."""

    def __init__(self):
        self.giving_up = GivingUp(RetryDelay("exponential", 1.0, 60.0, 2.0))
        self.failing, self.now, self.succeeded = {}, 0.0, 0
        self.alike: list[str] = []  # given up since the last success
        self.next_offset = 5
        self.offsets = list(range(5))

    def fail(self, slot, kind):
        offset = self.offsets[slot]
        is_new = offset not in self.failing
        since, before, first = self.failing.setdefault(offset, (self.now, self.succeeded, kind))
        staying = self.giving_up.stays(record_of("k", offset), ERRORS[kind], self.succeeded, self.now)
        waited, others = self.now - since, self.succeeded > before
        if staying is None:
            if kind in SIGNS:
                assert others or waited >= SHORT_STAY, "given up in an outage"
                assert others or first not in SIGNS or waited >= LONGEST_STAY
            self.alike.append(kind)
            del self.failing[offset]
            self.offsets[slot], self.next_offset = self.next_offset, self.next_offset + 1
        else:
            assert not others, "another record has succeeded since"
            assert waited < LONGEST_STAY
            assert 0 < staying.due - self.now <= LONGEST_BACKOFF
            if kind not in SIGNS:
                assert self.alike[-FIRST_ALIKE:] == [kind] * FIRST_ALIKE if is_new else first == kind

    def succeed(self, many, _):
        self.succeeded += many
        self.alike.clear()

    def wait(self, seconds, _):
        self.now += seconds


@given(steps)
@settings(max_examples=300)
def test_only_what_may_be_given_up_is(steps):
    model = Model()
    for name, value, kind in steps:
        getattr(model, name)(value, kind)


@given(st.lists(st.sampled_from(SIGNS), min_size=1, max_size=5), st.integers(0, 3))
def test_while_nothing_succeeds_a_record_goes_after_ten_minutes_at_the_latest(kinds, tried):
    giving_up, now, calls = GivingUp(None), 0.0, 0
    while staying := giving_up.stays(record_of("k", tried), ERRORS[kinds[calls % len(kinds)]], 0, now):
        now, calls = staying.due, calls + 1
        assert calls < 1_000
    assert LONGEST_STAY <= now <= LONGEST_STAY + LONGEST_BACKOFF
