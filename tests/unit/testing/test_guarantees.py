"""Each guarantee against the traces that its docstring lists: those that hold and those that do not."""

from __future__ import annotations

import pytest

from multilane.testing.events import Committed, Copied, Ended, Produced, RecordPlace, Started, in_order
from multilane.testing.guarantees import (
    AtLeastOnce,
    NoCommitPastUnsettled,
    NoDuplicateWithoutRestart,
    NoSameKeyOverlap,
    PerKeyOrder,
    violations,
)
from unit.testing.traces import events_of, traces_of

GUARANTEES = (AtLeastOnce, NoCommitPastUnsettled, NoDuplicateWithoutRestart, NoSameKeyOverlap, PerKeyOrder)
TRACES = [
    pytest.param(kind, "across" in heading, holds, trace, id=f"{kind.__name__}: {trace}")
    for kind in GUARANTEES
    for heading, holds, trace in traces_of(kind)
]


@pytest.mark.parametrize(("kind", "is_across", "holds", "trace"), TRACES)
def test_a_trace_is_judged_as_it_is_listed(kind, is_across, holds, trace):
    guarantee = kind(across_topics=True) if is_across else kind()
    found = violations(events_of(trace), [guarantee])
    assert (not found) is holds, [str(violation) for violation in found]


@pytest.mark.parametrize("kind", GUARANTEES)
def test_every_guarantee_lists_traces_of_both_kinds(kind):
    holding = [holds for _, holds, _ in traces_of(kind)]
    assert holding.count(True) >= 2
    assert holding.count(False) >= 2


@pytest.mark.parametrize("kind", GUARANTEES)
def test_traces_that_hold_for_one_record_hold_for_none(kind):
    assert violations([], [kind()]) == []


def test_a_violation_names_the_records_and_their_places():
    (found,) = violations(events_of("+a1 +a2 A(a1 A)a1"), [AtLeastOnce()])
    assert str(found) == "at-least-once: record a2 of key a (t-0@1) was never handled"
    (found,) = violations(events_of("+a1 A(a1 =1"), [NoCommitPastUnsettled()])
    assert str(found) == ("no-commit-past-unsettled: offset 1 was committed while record a1 (t-0@0) was not settled")
    (found,) = violations(events_of("+a1 +a2 A(a1 B(a2"), [NoSameKeyOverlap()])
    assert "B began record a2 of key a (t-0@1)" in found.text
    assert "while A had been processing record a1 (t-0@0)" in found.text
    (found,) = violations(events_of("+a1 A(a1 A)a1 A(a1"), [NoDuplicateWithoutRestart()])
    assert "A began record a1 (t-0@0) again" in found.text
    found, *_ = violations(events_of("+a1 +a2 A(a2 A)a2 A(a1 A)a1"), [PerKeyOrder()])
    assert "record a1 of key a (t-0@0) was begun for the first time after t-0@1" in found.text


def test_a_copy_may_be_handled_before_it_is_seen_and_seen_after_the_one_behind_it():
    """Members and the brokers are asked in turn, so what they tell overlaps."""
    topic, copy, error = RecordPlace("t", 0, 0), RecordPlace("t.retry", 0, 0), RecordPlace("t.error", 0, 0)
    failed = [Started(1.0, "A", 1, "a1", "a", topic), Ended(2.0, "A", 1, "a1", "a", topic, False)]
    handled = [Started(3.0, "A", 2, "a1", "a", copy, 2), Ended(4.0, "A", 2, "a1", "a", copy)]
    produced, seen = Produced(0.0, "a1", "a", topic), Copied(5.0, "a1", "a", copy)
    commit = [Committed(6.0, "t", 0, 1), Committed(6.0, "t.retry", 0, 1)]
    judges = [AtLeastOnce(), NoCommitPastUnsettled(), PerKeyOrder(across_topics=True)]
    assert violations([produced, *failed, *handled, seen, *commit], judges) == []

    refused = [*handled[:1], Ended(4.0, "A", 2, "a1", "a", copy, False), Copied(4.5, "a1", "a", error, True)]
    judges = [AtLeastOnce(), NoCommitPastUnsettled(), PerKeyOrder(across_topics=True)]
    assert violations([produced, *failed, *refused, seen, *commit], judges) == []


def test_topics_are_apart_unless_they_are_judged_across():
    trace = "+a1 +a2 A(a1 A!a1 a1>r A(a2 A(a1' A)a2 A)a1'"
    assert violations(events_of(trace), [NoSameKeyOverlap(across_topics=False)]) == []
    assert violations(events_of(trace), [PerKeyOrder(across_topics=False)]) == []
    assert violations(events_of(trace), [NoSameKeyOverlap(), PerKeyOrder(across_topics=True)])


def test_records_without_a_key_have_no_order_and_may_overlap():
    first, second = RecordPlace("t", 0, 0), RecordPlace("t", 0, 1)
    events = [
        Produced(0.0, "1", None, first),
        Produced(0.0, "2", None, second),
        Started(1.0, "A", 1, "2", None, second),
        Started(2.0, "A", 2, "1", None, first),
        Ended(3.0, "A", 2, "1", None, first),
        Ended(4.0, "A", 1, "2", None, second),
    ]
    judges = [AtLeastOnce(), NoSameKeyOverlap(), PerKeyOrder(), PerKeyOrder(across_topics=True)]
    assert violations(events, judges) == []


def test_streams_are_put_in_order_by_time_and_then_as_they_are_reported():
    place = RecordPlace("t", 0, 0)
    members = [Started(2.0, "A", 1, "1", "a", place), Ended(2.0, "A", 1, "1", "a", place)]
    produced = [Produced(1.0, "1", "a", place)]
    assert in_order(members, produced) == [*produced, *members]
