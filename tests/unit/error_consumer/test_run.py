"""How a run of the error consumer sets up its member."""

from __future__ import annotations

import asyncio
from uuid import uuid4

from multilane.clock import ManualClock
from multilane.config.reset import ResetPolicy
from multilane.error_consumer.error_partition import ErrorSteps
from multilane.error_consumer.run import ErrorRun
from multilane.outcome.error_policy import ErrorRules, error_topics
from multilane.outcome.next_step import RetryPolicy
from multilane.types import TopicPartition
from unit.error_consumer.test_error_partition import Gate, record, under_way

FLOW = RetryPolicy("orders", "orders.retry", "orders.error", retry_count=1)
PARTITION = TopicPartition("orders.error", 0)


def make_run(gate=None, **properties):
    ours = {"bootstrap.servers": "127.0.0.1:1", "group.id": "orders.errors", **properties}
    return ErrorRun(ours, ErrorRules(error_topics([FLOW])), ErrorSteps(gate or Gate()), ManualClock())


async def test_its_shares_are_behind_the_fence_of_its_own_member():
    gate = Gate()
    run = make_run(gate)
    async with run._consumer as consumer:
        await run.on_assigned(frozenset({PARTITION}))
        consumer._state.member_status.fenced_after = -1.0
        share = run._shares[PARTITION]
        share.take(iter([record(0)]), lambda: 2_000_000_000_000, lambda: None)
        await under_way(lambda: run._fence._waiting)
        assert gate.sent == []
        async with asyncio.timeout(10):
            await run.on_lost(frozenset({PARTITION}))
        assert (gate.sent, share.frontier) == ([], None)


async def test_no_error_record_is_skipped_when_the_position_is_lost():
    run = make_run(**{"auto.offset.reset": "latest"})
    async with run._consumer as consumer:
        assert consumer._state.config.auto_offset_reset.policy is ResetPolicy.LATEST
        assert consumer._state.config.lost_position_reset.policy is ResetPolicy.EARLIEST


async def test_a_commit_names_the_log_that_was_read(monkeypatch):
    """Else it would be stored for a topic that was deleted and created again."""
    run, commits, read = make_run(), [], uuid4()
    done = asyncio.Event()

    async def commit(offsets):
        commits.append(offsets)

    async with run._consumer as consumer:
        monkeypatch.setattr(consumer, "known_topic_id", {"orders.error": read}.get)
        monkeypatch.setattr(consumer, "commit", commit)
        await run.on_assigned(frozenset({PARTITION}))
        monkeypatch.setattr(consumer, "known_topic_id", lambda topic: uuid4())  # created again
        run._shares[PARTITION].take(iter([record(0)]), lambda: 2_000_000_000_000, done.set, 7)
        await asyncio.wait_for(done.wait(), 10)
        await run.on_revoked(frozenset({PARTITION}))
    [offsets] = commits
    at = offsets[PARTITION]
    assert (at.offset, at.leader_epoch, at.topic_id) == (1, 7, read)
