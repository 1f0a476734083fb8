"""What is judged, by what, and when it is a proof."""

from __future__ import annotations

from itertools import product

import pytest

from multilane.audit.order import order_rule
from multilane.audit.spans import Known, Span, spans_of
from multilane.audit.verdict import AuditCounts, AuditVerdict, total
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.types import TopicPartition

PLACE = TopicPartition("orders", 0)
RESET = "offset 50 is committed, and its audit records begin at 100: was it reset?"


@pytest.mark.parametrize(
    ("known", "span"),
    [
        (Known(0, 50, 0), Span(0, 50)),
        (Known(10, 50, 0), Span(10, 50, uncovered=10)),
        (Known(10, 50, 20), Span(20, 50, expired=10)),
        (Known(10, 50, 0, since=30), Span(30, 50)),
        (Known(10, 50, 0, since=5), Span(10, 50, uncovered=5)),
        (Known(10, 50, 10, until=40), Span(10, 40)),
        (Known(10, 50, 10, until=90), Span(10, 50)),
        (Known(10, 50, 10, is_anchored=False), Span(10, 50, is_loose=True)),
        (Known(10, 50, 0, since=5, is_anchored=False), Span(5, 50)),
        (Known(10, 50, 0, since=30, is_anchored=False), Span(30, 50)),
        (Known(10, 50, 0, since=60), Span(60, 60)),
        (Known(10, 10, 0), Span(10, 10)),
        (Known(10, 50, 70), Span(70, 70, 40, "the records with audit records are gone from the log")),
        (Known(None, 50, 0), Span(0, 0, why="it has no audit records", is_hole=True)),
        (Known(None, 50, 50), Span(0, 0, why="it has no audit records")),
        (Known(None, 50, 0, since=50), Span(0, 0, why="it has no audit records")),
        (Known(10, 50, 0, reached=80), Span(10, 50, uncovered=10, beyond=30)),
        (Known(10, 50, 0, until=40, reached=80), Span(10, 40, uncovered=10)),
        (Known(10, 10, 0, reached=40), Span(10, 10, beyond=30)),
        (Known(100, 50, 0, reached=160), Span(100, 100, why=RESET, beyond=110)),
        (Known(None, 50, 0, exists=False), Span(0, 0, why="the topic no longer has this partition")),
        (Known(10, None, 0, reached=30), Span(0, 0, why="the group has committed nothing", beyond=30)),
        (Known(10, None, 0), Span(0, 0, why="the group has committed nothing")),
    ],
)
def test_what_must_have_an_account(known, span):
    assert spans_of({PLACE: known}) == {PLACE: span}
    assert len(span) == span.end - span.start


def test_a_partition_with_a_commit_is_judged_or_has_a_reason():
    """A commit below the first audit record left the partition out, without a word."""
    for begun, committed, log_start in product(range(4), range(1, 4), range(3)):
        span = spans_of({PLACE: Known(begun, committed, log_start)})[PLACE]
        assert len(span) or span.why or begun == committed


def consumer(**settings) -> ConsumerGroupConfig:
    told = {"name": "c", "group_id": "g", "topic": "orders", "cluster": "main"} | settings
    return ConsumerGroupConfig(**told)


@pytest.mark.parametrize(
    ("settings", "by", "across_retry"),
    [
        ({}, "key", False),
        ({"order_by": "partition"}, "partition", False),
        ({"retry": "r", "retry_order": "key"}, "key", True),
        ({"retry_order": "key"}, "key", False),
        ({"retry": "r", "retry_order": "key", "order_by": "partition"}, "partition", False),
        ({"order_by": "none"}, None, False),
        ({"ack": "manual"}, None, False),
        ({"lane_classes": {"slow": 2}}, None, False),
    ],
)
def test_order_is_judged_as_it_is_promised(settings, by, across_retry):
    rule = order_rule(consumer(**settings))
    assert (rule.by, rule.across_retry) == (by, across_retry)
    assert bool(rule.why) == (by is None)


def test_a_proof_needs_an_account_for_each_and_the_order_of_keys():
    whole = AuditCounts(read=10, done=5, skipped=2, retried=2, dead=1)
    assert (whole.accounted, whole.unaccounted) == (10, 0)
    assert AuditVerdict({PLACE: whole}).holds()
    assert not AuditVerdict({PLACE: AuditCounts(read=10, done=9)}).holds()
    assert not AuditVerdict({PLACE: AuditCounts(read=1, done=1, inverted=1)}).holds()
    again = AuditVerdict({PLACE: AuditCounts(read=1, done=1, repeated=1)})
    assert (again.holds(), again.holds(exactly_once=True)) == (True, False)


def test_tallies_add_up():
    one = AuditCounts(read=3, done=2, repeated=1, gone=4)
    assert total([one, one, AuditCounts(dead=1)]) == AuditCounts(read=6, done=4, dead=1, repeated=2, gone=8)
