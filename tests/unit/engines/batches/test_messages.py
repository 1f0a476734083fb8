"""What is received on the line comes out as it went in."""

from __future__ import annotations

import json

from multilane.commit.ledger import CommitPoint
from multilane.engines.batches.messages import HeldRecord, PartitionLease, TaskLease, task_lease_from
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

ONE, RETRY = TopicPartition("orders", 1), TopicPartition("orders.retry", 1)


def test_a_lease_goes_over_the_channel():
    retry = Record("orders.retry", 1, 3, 1_700_000_000_000, 0, None, None, (("X-RetryCount", b"1"), ("trace", None)))
    lease = PartitionLease(
        7,
        "Orders",
        {ONE: CommitPoint(12, -1, ((14, 20), (22, 22))), RETRY: CommitPoint(0, 4, ())},
        (HeldRecord(ONE, 13, b"\x00\xff"), HeldRecord(ONE, 21, None, blocks_key=False)),
        (retry,),
        5,
    )
    task_lease = TaskLease(3, 2.5, 0.5, (lease,), {"Orders": "m-1"})
    received = task_lease_from(json.loads(json.dumps(task_lease.to_json())))
    assert received == task_lease
    assert received.leases[0].retries[0].headers == retry.headers
    assert received.leases[0].retries[0].timestamp == retry.timestamp


def test_the_members_of_a_lease_may_be_missing():
    form = TaskLease(3, 2.5, 0.5, (), {"Orders": "m-1"}).to_json()
    del form["members"]
    assert task_lease_from(form) == TaskLease(3, 2.5, 0.5)
