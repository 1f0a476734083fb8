"""One partition of an error run: order, what is touched, and how far it may be committed."""

from __future__ import annotations

import asyncio

import pytest

from multilane.error_consumer.error_partition import ErrorPartition, ErrorSteps, RunCounts
from multilane.errors import PublishStopped
from multilane.lanes.fence import NO_FENCE
from multilane.metrics.observer import Counts
from multilane.outcome.error_policy import ErrorRules, error_topics
from multilane.outcome.headers import ERROR_COUNT, TARGET_TOPIC
from multilane.outcome.next_step import RetryPolicy
from multilane.outcome.redrive import ReplayMarks
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

NOW = 2_000_000_000_000
OLD = NOW - 3_600_000
FLOW = RetryPolicy("orders", "orders.retry", "orders.error", retry_count=1)
PARTITION = TopicPartition("orders.error", 0)
FORGED = ((TARGET_TOPIC, b"payments"),)
WORN = ((ERROR_COUNT, b"9"),)


class Gate:
    """A publisher whose acknowledgements the test lets through."""

    def __init__(self, *, is_open=True):
        self.sent = []
        self.is_stopped = False
        self._open = asyncio.Event()
        if is_open:
            self._open.set()

    async def publish(self, copy):
        self.sent.append(copy)
        await self._open.wait()
        if self.is_stopped:
            raise PublishStopped("stopped")
        return 0, len(self.sent)

    def open(self):
        self._open.set()


def record(offset, key=b"k", timestamp=OLD, headers=()):
    return Record("orders.error", 0, offset, timestamp, 0, key, b"%d" % offset, tuple(headers))


def _not_mine(record, reason):
    raise AssertionError(f"{record} is of another topic")


class Bench:
    def __init__(self, *, is_open=True, **settings):
        self.gate = Gate(is_open=is_open)
        self.tally = RunCounts()
        self.done = asyncio.Event()
        dead = settings.pop("dead", None)
        replayed = settings.pop("replayed", ())
        handler = settings.pop("handler", None)
        last_step = settings.pop("last_step", None)
        fence = settings.pop("fence", NO_FENCE)
        rules = ErrorRules(error_topics([FLOW], custom=[FLOW] if handler else []), dead=dead)
        last_steps = {PARTITION.topic: last_step} if last_step else {"other.error": _not_mine}
        steps = ErrorSteps(self.gate, {FLOW: handler} if handler else {}, last_steps, **settings)
        self.share = ErrorPartition(PARTITION, rules, steps, self.tally, ReplayMarks(0, replayed), fence)

    def take(self, *records):
        self.share.take(iter(records), lambda: NOW, self.done.set)

    async def finish(self):
        await asyncio.wait_for(self.done.wait(), 10)


async def under_way(condition):
    """Lets the loop turn until it is so."""
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.001)


async def test_records_are_given_back_and_may_be_committed():
    bench = Bench()
    assert bench.share.frontier is None
    bench.take(*(record(n, key=b"%d" % (n % 3)) for n in range(5, 50)))
    await bench.finish()
    assert bench.share.frontier == 50
    assert bench.tally.republished == 45
    assert sorted(int(c.value) for c in bench.gate.sent) == list(range(5, 50))


async def test_copies_of_a_key_go_one_after_the_other_and_others_meanwhile():
    bench = Bench(is_open=False)
    bench.take(record(0, b"a"), record(1, b"a"), record(2, b"b"), record(3, None), record(4, None))
    await under_way(lambda: len(bench.gate.sent) == 4)
    assert [c.value for c in bench.gate.sent] == [b"0", b"2", b"3", b"4"]
    assert bench.share.frontier == 0, "nothing is acknowledged"
    bench.gate.open()
    await bench.finish()
    assert bench.gate.sent[-1].value == b"1"
    assert bench.share.frontier == 5


async def test_a_new_record_ends_the_partition_in_front_of_it():
    """Records behind a new one were handled and committed, and the new one with them: it was lost."""
    bench = Bench()
    bench.take(record(0), record(1), record(2, timestamp=NOW), record(3), record(4))
    await bench.finish()
    assert [c.value for c in bench.gate.sent] == [b"0", b"1"]
    assert bench.share.frontier == 2
    assert bench.tally.waiting == [(PARTITION, 2)]
    bench.take(record(3))
    assert not bench.share.is_busy, "it is over for this run"


async def test_a_first_record_that_is_new_leaves_nothing_to_commit():
    bench = Bench()
    bench.take(record(7, timestamp=NOW), record(8))
    await bench.finish()
    assert bench.share.frontier is None
    assert bench.gate.sent == []


async def test_a_record_that_is_kept_ends_the_partition_in_front_of_it():
    kept = []
    counts = Counts()
    bench = Bench(on_kept=lambda *news: kept.append(news), observer=counts)
    bench.take(record(0), record(1, headers=FORGED), record(2))
    await bench.finish()
    assert bench.share.frontier == 1
    assert [(p, offset) for p, offset, _ in bench.tally.kept] == [(PARTITION, 1)]
    assert kept[0][0] == record(1)
    assert counts.snapshot() == {"errors.republished": 1, "errors.kept": 1}


async def test_a_listener_that_fails_does_not_make_the_partition_go_on(caplog):
    def on_kept(record, reason):
        raise RuntimeError("mine")

    bench = Bench(on_kept=on_kept)
    bench.take(record(0, headers=FORGED), record(1))
    await bench.finish()
    assert bench.share.finished is not None
    assert bench.gate.sent == []


async def test_a_record_without_acknowledgement_holds_the_commit():
    bench = Bench(is_open=False)
    bench.take(record(0), record(1, timestamp=NOW))
    await under_way(lambda: bench.gate.sent)
    bench.gate.is_stopped = True
    bench.gate.open()
    await bench.finish()
    assert bench.share.frontier == 0
    assert bench.tally.republished == 0


async def test_what_stands_behind_a_copy_that_was_not_stored_is_not_sent():
    bench = Bench(is_open=False)
    bench.take(record(0), record(1), record(2))
    await under_way(lambda: bench.gate.sent)
    bench.gate.is_stopped = True
    bench.gate.open()
    await bench.finish()
    assert [c.value for c in bench.gate.sent] == [b"0"]
    assert bench.share.frontier == 0


async def test_what_was_begun_is_finished_although_the_partition_is_over():
    bench = Bench(is_open=False)
    bench.take(record(0), record(1), record(2, timestamp=NOW))
    await under_way(lambda: bench.share.finished)
    bench.gate.open()
    await bench.finish()
    assert bench.share.frontier == 2


async def test_draining_gives_up_what_takes_too_long():
    bench = Bench(is_open=False)
    bench.take(record(0), record(1))
    await under_way(lambda: bench.gate.sent)
    await bench.share.drain(0.01)
    assert not bench.share.is_busy
    assert bench.share.frontier == 0


async def test_draining_waits_for_what_is_under_way():
    bench = Bench(is_open=False)
    bench.take(record(0, b"a"), record(1, b"b"))
    await under_way(lambda: len(bench.gate.sent) == 2)
    drain = asyncio.create_task(bench.share.drain(10))
    await under_way(lambda: bench.share._is_stopping)
    bench.gate.open()
    await drain
    assert bench.share.frontier == 2


async def test_what_was_replayed_by_hand_is_passed_over():
    """Also a record that would be kept, or is too new: somebody has dealt with it."""
    bench = Bench(replayed=[(1, 2), (4, 4)])
    bench.take(record(0), record(1, headers=FORGED), record(2, timestamp=NOW), record(3), record(4), record(5))
    await bench.finish()
    assert sorted(c.value for c in bench.gate.sent) == [b"0", b"3", b"5"]
    assert (bench.share.frontier, bench.tally.skipped, bench.tally.kept) == (6, 3, [])


async def test_a_copy_that_fails_in_an_unheard_of_way_holds_the_commit(caplog):
    bench = Bench()

    async def publish(copy):
        raise RuntimeError("a defect")

    bench.gate.publish = publish
    bench.take(record(0), record(1))
    await bench.finish()
    assert bench.share.frontier == 0
    assert bench.share.finished == "RuntimeError: a defect"


# --- the application's own -------------------------------------------------------------------------------------------


async def test_an_error_consumer_of_the_application_sees_records_one_by_one():
    seen = []

    async def handler(record):
        seen.append(record.offset)

    bench = Bench(handler=handler)
    bench.take(*(record(n) for n in range(5)))
    await bench.finish()
    assert seen == [0, 1, 2, 3, 4]
    assert (bench.share.frontier, bench.tally.handled, bench.gate.sent) == (5, 5, [])


async def test_an_error_consumer_may_be_a_plain_function():
    seen = []
    bench = Bench(handler=lambda record: seen.append(record.offset))
    bench.take(record(0), record(1))
    await bench.finish()
    assert (seen, bench.share.frontier) == ([0, 1], 2)


async def test_a_plain_function_may_make_a_coroutine():
    seen = []

    async def note(record):
        seen.append(record.offset)

    def handler(record):
        return note(record)

    bench = Bench(handler=handler)
    bench.take(record(0))
    await bench.finish()
    assert (seen, bench.share.frontier) == ([0], 1)


async def test_what_an_error_consumer_raises_keeps_the_record(caplog):
    seen = []

    def handler(record):
        seen.append(record.offset)
        if record.offset == 1:
            raise ValueError("not yet")

    bench = Bench(handler=handler)
    bench.take(*(record(n) for n in range(5)))
    await bench.finish()
    assert seen == [0, 1]
    assert bench.share.frontier == 1
    assert bench.tally.kept == [(PARTITION, 1, "ValueError: not yet")]


async def test_an_error_consumer_that_takes_too_long_is_cancelled(caplog):
    async def handler(record):
        await asyncio.Event().wait()

    bench = Bench(handler=handler, max_processing_time=0.01)
    bench.take(record(0))
    await bench.finish()
    ((_, offset, reason),) = bench.tally.kept
    assert (offset, reason) == (0, "TimeoutError: exceeded maxProcessingTime (0.01 s)")


async def test_a_time_out_of_its_own_is_reported_as_it_is(caplog):
    async def handler(record):
        raise TimeoutError("the shop does not answer")

    bench = Bench(handler=handler)
    bench.take(record(0))
    await bench.finish()
    assert bench.tally.kept[0][2] == "TimeoutError: the shop does not answer"


async def test_worn_records_go_to_the_last_step():
    seen = []
    bench = Bench(last_step=lambda record, reason: seen.append((record.offset, reason)), dead="dead")
    bench.take(record(0, headers=WORN), record(1))
    await bench.finish()
    assert seen == [(0, "it came back 9 times; the limit is 1 (maxErrorCount)")]
    assert (bench.share.frontier, bench.tally.exhausted, bench.tally.republished) == (2, 1, 1)


async def test_worn_records_go_to_the_dead_topic_unchanged():
    bench = Bench(dead="orders.dead")
    bench.take(record(0, headers=WORN))
    await bench.finish()
    (copy,) = bench.gate.sent
    assert (copy.topic, copy.key, copy.value, copy.headers) == ("orders.dead", b"k", b"0", WORN)
    assert bench.share.frontier == 1


async def test_records_without_a_target_go_to_the_dead_topic_unchanged_and_others_go_on(caplog):
    counts = Counts()
    bench = Bench(dead="orders.dead", observer=counts)
    bench.take(record(0), record(1, headers=FORGED), record(2))
    await bench.finish()
    assert [(copy.topic, copy.headers) for copy in bench.gate.sent if copy.topic == "orders.dead"] == [
        ("orders.dead", FORGED)
    ]
    assert (bench.share.frontier, bench.tally.kept, bench.tally.republished) == (3, [], 2)
    assert counts.snapshot() == {"errors.republished": 2, "errors.buried": 1}
    assert "orders.error-0@1 goes to the dead topic orders.dead" in caplog.text


async def test_worn_records_that_nobody_wants_stay_in_their_topic(caplog):
    bench = Bench()
    bench.take(record(0, headers=WORN))
    await bench.finish()
    assert bench.share.frontier == 1
    assert "orders.error-0@0 is exhausted and stays in its error topic" in caplog.text


@pytest.mark.parametrize("kind", ["raises", "publish"])
async def test_a_last_step_that_fails_keeps_the_record(kind, caplog):
    def last_step(record, reason):
        raise OSError("disk full")

    bench = Bench(last_step=last_step) if kind == "raises" else Bench(dead="dead")
    bench.gate.is_stopped = True
    bench.take(record(0, headers=WORN), record(1))
    await bench.finish()
    assert bench.share.frontier == 0
    assert bench.share.finished is not None
    assert bench.tally.exhausted == 0
