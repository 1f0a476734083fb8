"""Windows where order survives a retry: a topic's partition and its retry partition, and keys with a backlog."""

from __future__ import annotations

import pytest

from lane_world import record_of
from multilane.commit.ledger import Ledger
from multilane.lanes.chains import Chains
from multilane.lanes.intake import Intake
from multilane.lanes.lane import Lane
from multilane.lanes.ordering import by_key
from multilane.lanes.partition_queue import MAIN, PartitionQueue
from multilane.lanes.threads import Threads
from multilane.lanes.work import Work
from multilane.lanes.work_rules import WorkRules
from multilane.listeners.interceptors import InterceptorChain
from multilane.listeners.listener import Listener
from multilane.listeners.signature import read_signature
from multilane.listeners.window import Window, newest_of_each_key
from multilane.outcome.parking import Parking
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

RETRY = "t.retry"


class Copies:
    """The failure side: a record of the topic is copied to the retry topic, a record of the retry topic stays."""

    wants_successes = False

    def __init__(self):
        self.stored = []
        self.gives_up = False
        self.interrupted = []

    async def take_over(self, record, error, parking):
        if self.gives_up:
            return None
        if record.topic == RETRY:
            return record
        await self.follow_key([record], parking)
        return None

    async def follow_key(self, records, parking):
        for record in records:
            self.stored.append(record.offset)
            parking.seen(record.key, 100 + len(self.stored))

    def note_done(self, records):
        """Ignored."""

    note_skipped = note_skipped_rows = note_done

    def note_interrupted(self, records):
        self.interrupted += [record.offset for record in records]


class Pair:
    def __init__(self, handler, window):
        self.copies, self.parking = Copies(), Parking(RETRY)
        intakes = [Intake(TopicPartition(topic, 3), Ledger(0), 100) for topic in (RETRY, "t")]
        self.ledgers = {intake.partition.topic: intake.ledger for intake in intakes}
        queue = PartitionQueue(intakes, {MAIN: Chains(by_key(), 4)})
        listener = Listener(handler, read_signature(handler), window, InterceptorChain("g"), Threads("lane"))
        self.work = Work(queue, listener, self.copies, WorkRules(), self.parking)

    async def handle(self, *records):
        for topic, ledger in self.ledgers.items():
            ledger.hand_out(sorted(record.offset for record in records if record.topic == topic))
            ledger.advance(10)
        for record in records:
            if record.topic == RETRY:
                self.parking.seen(record.key, record.offset)
        return await self.work.several(Lane(), list(records))

    def unsettled(self, topic):
        return self.ledgers[topic].unsettled


async def test_a_unique_listener_never_takes_an_older_retry_for_the_newest():
    """The later record was read from the topic first, and waited longer than the copy of the failed one."""
    handled = []

    async def handler(record: Record) -> None:
        handled.append((record.topic, record.offset))

    pair = Pair(handler, Window(4, 60.0, newest_of_each_key))
    await pair.handle(record_of("a", 7), record_of("a", 5, RETRY))
    assert handled == [(RETRY, 5)]
    assert pair.copies.stored == [7], "the newer one was skipped, or overtook"
    assert pair.unsettled("t") == pair.unsettled(RETRY) == ()


@pytest.fixture
def failing():
    """A batch function that fails for some offsets."""
    offsets = set()

    async def handler(records: list[Record]) -> dict[Record, Exception]:
        return {r: ValueError("no") for r in records if r.offset in offsets}

    handler.offsets = offsets
    return handler


async def test_what_succeeded_behind_a_failed_one_of_its_key_follows_it(failing):
    failing.offsets.add(2)
    pair = Pair(failing, Window(8, 60.0))
    again = await pair.handle(*(record_of(key, i) for i, key in enumerate("abaab")))
    assert again == []
    assert pair.copies.stored == [2, 3], "in the order of the key, and no other key"
    assert pair.copies.interrupted == [3], "it has succeeded, and will be handled again"
    assert pair.unsettled("t") == ()


async def test_what_succeeded_behind_a_failed_one_in_the_retry_topic_stays_behind_it(failing):
    failing.offsets.add(1)
    pair = Pair(failing, Window(8, 60.0))
    again = await pair.handle(*(record_of(key, i, RETRY) for i, key in enumerate("aaab")))
    assert [record.offset for record in again] == [1, 2]
    assert pair.unsettled(RETRY) == (1, 2)
    assert pair.copies.interrupted == [2]
    assert pair.copies.stored == []


async def test_behind_an_exhausted_record_a_success_is_a_success(failing):
    failing.offsets.add(1)
    pair = Pair(failing, Window(8, 60.0))
    pair.copies.gives_up = True
    assert await pair.handle(*(record_of("a", i, RETRY) for i in range(3))) == []
    assert pair.unsettled(RETRY) == ()
    assert "a" not in pair.parking
