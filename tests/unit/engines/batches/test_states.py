"""The states of a lease and of the query: whatever happens, the tables have the move, and the state tells the truth."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multilane.clock import SystemClock
from multilane.commit.ledger import CommitPoint
from multilane.engines.batches.lease_table import LeaseTable
from multilane.engines.batches.messages import HeldRecord, PartitionLease
from multilane.engines.batches.states import (
    GRANTABLE,
    LEASE_TRANSITIONS,
    QUERY_TRANSITIONS,
    UNUSED,
    LeaseState,
    QueryState,
)
from multilane.engines.moves import moved
from multilane.lanes.assignment import Start
from multilane.types import TopicPartition

P = TopicPartition("orders", 0)
SLOW = [HeldRecord(P, offset, b"slow") for offset in range(3)]


class Worker:
    def send(self, kind, **fields):
        pass


def lease_of(processor, held=()):
    return PartitionLease(processor.number, "Orders", {P: CommitPoint(0, 0, ())}, tuple(held))


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_state_of_a_lease_follows_from_its_workers(data):
    """Through all that workers, Spark and the group can do, in any order, also late."""
    asyncio.run(happen(data))


async def happen(data):
    lease_table = LeaseTable(SystemClock())
    processor = lease_table.new_processor("Orders", {P: Start(0)})
    workers, tasks, is_revoked = [Worker(), Worker()], [], False
    for _ in range(data.draw(st.integers(0, 25))):
        worker = data.draw(st.sampled_from(workers))
        match data.draw(st.sampled_from(["plan", "grant", "return", "release", "close", "lose", "end", "revoke"])):
            case "plan":
                tasks += lease_table.plan(1)
            case "grant" if tasks:
                lease_table.grant(data.draw(st.sampled_from(tasks)), worker)
            case "return":
                held = data.draw(st.lists(st.sampled_from(SLOW), unique=True))
                lease_table.take_back([lease_of(processor, held)], worker)
            case "release":
                records = data.draw(st.lists(st.sampled_from(SLOW), unique=True))
                lease_table.release(processor.number, records, worker, is_settled=data.draw(st.booleans()))
            case "close" if tasks:
                lease_table.close(data.draw(st.sampled_from(tasks)), worker)
            case "lose":
                lease_table.lose(worker)
            case "end":
                lease_table.end_batch()
            case "revoke":
                is_revoked = True
                await drained(processor)
        holds, carries = processor.worker is not None, bool(processor._held)
        assert processor.state is expected(holds, carries, is_revoked)
        assert processor._is_unused.is_set() == (processor.state in UNUSED) == (not holds and not carries)
        assert (processor.state in GRANTABLE) == (not holds and not is_revoked)


async def drained(processor):
    """The workers are asked, and do not answer yet."""
    draining = asyncio.create_task(processor.drain(0.0))
    await asyncio.wait([draining], timeout=0)
    draining.cancel()


def expected(holds, carries, is_revoked):
    if is_revoked:
        return LeaseState.REVOKING if holds or carries else LeaseState.REVOKED
    if holds:
        return LeaseState.GRANTED
    return LeaseState.CARRIED if carries else LeaseState.FREE


@pytest.mark.parametrize(("table", "states"), [(LEASE_TRANSITIONS, LeaseState), (QUERY_TRANSITIONS, QueryState)])
def test_a_table_has_all_states_and_its_last_one_is_final(table, states):
    assert set(table) == set(states)
    assert [state for state in table if not table[state]] == [list(states)[-1]]


def test_a_move_that_the_table_does_not_have_is_a_defect():
    assert moved(LEASE_TRANSITIONS, LeaseState.FREE, LeaseState.FREE) is LeaseState.FREE
    with pytest.raises(AssertionError, match="a LeaseState goes from REVOKED to GRANTED"):
        moved(LEASE_TRANSITIONS, LeaseState.REVOKED, LeaseState.GRANTED)
    with pytest.raises(AssertionError, match="a QueryState goes from OVER to RUNNING"):
        moved(QUERY_TRANSITIONS, QueryState.OVER, QueryState.RUNNING)
