"""The error consumer against a real broker: what it gives back, where it stops, and several of them together."""

from __future__ import annotations

import asyncio
import signal
import sys
import uuid
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from broker.produce import Content, new_producer, send
from broker.reading import read_rows
from multilane import Admin, AsyncConsumer, Consumer, Producer, TopicPartition
from multilane.clock import SystemClock
from multilane.commit import completion_map
from multilane.config.app.clients import for_copies
from multilane.error_consumer.consumer import ErrorConsumer
from multilane.error_consumer.error_partition import ErrorSteps
from multilane.error_consumer.reading import GROUP_PREFIX, ErrorLog
from multilane.error_consumer.replay import Replay, ReplayOptions
from multilane.errors import BrokerError, ClientClosed
from multilane.outcome.error_policy import ErrorRules, error_topics, shovel_topics
from multilane.outcome.headers import ERROR_COUNT, ERROR_MESSAGE, RETRY_COUNT, TARGET_TOPIC
from multilane.outcome.next_step import RetryPolicy
from multilane.outcome.publishing import Pauses, Publisher
from multilane.outcome.redrive import Filter
from multilane.types import Offset, OffsetAndMetadata

pytestmark = pytest.mark.broker

CLOCK = SystemClock()
LONG = 120.0


class Shop:
    """A group with its topics, and error consumers for it."""

    def __init__(self, kafka, topic, partitions):
        self.kafka = kafka
        self.error, self.retry = topic(partitions), topic(partitions)
        self.retry_policy = RetryPolicy("orders", self.retry, self.error, retry_count=1)
        self.group = f"errors-{uuid.uuid4().hex[:8]}"
        self.partitions = partitions
        self._writer = new_producer(kafka.bootstrap())
        self._publishers = []

    def fail(self, *values, partition=0, age=3_600, headers=None, key=b"k"):
        """Error records of this age."""
        own = ((TARGET_TOPIC, self.retry.encode()), (ERROR_COUNT, b"1")) if headers is None else headers
        at = int((CLOCK.wall() - age) * 1_000)
        contents = [Content(value, key=key, headers=own, timestamp=at) for value in values]
        send(self._writer, self.error, contents, partition=partition)

    def publisher(self):
        properties = {"bootstrap.servers": self.kafka.bootstrap(), "linger.ms": 0, "max.block.ms": 300}
        made = Publisher(lambda: Producer(properties), pauses=Pauses(0.05, 0.1))
        self._publishers.append(made)
        return made

    def consumer(self, *, idle=1.0, new=300.0, topics=None, schedule=None, protocol="consumer", **steps):
        custom = steps.pop("custom", ())
        rules = ErrorRules(
            topics or error_topics([self.retry_policy], custom),
            close_when_no_message=idle,
            close_when_message_is_new=new,
            dead=steps.pop("dead", None),
            counts_rounds=steps.pop("counts_rounds", False),
        )
        properties = {
            "bootstrap.servers": self.kafka.bootstrap(),
            "group.id": self.group,
            "group.protocol": protocol,
        }
        publisher = steps.pop("publisher", None) or self.publisher()
        return ErrorConsumer(properties, rules, ErrorSteps(publisher, **steps), schedule=schedule)

    async def stored(self, count, topic=None):
        return await asyncio.to_thread(self._read, topic or self.retry, count)

    def _read(self, name, count):
        with Consumer({"bootstrap.servers": self.kafka.bootstrap(), "auto.offset.reset": "earliest"}) as consumer:
            consumer.assign(TopicPartition(name, p) for p in range(self.partitions))
            return read_rows(consumer, count)

    async def ends(self, topic):
        return await asyncio.to_thread(self._ends, topic)

    def _ends(self, topic):
        with Admin({"bootstrap.servers": self.kafka.bootstrap()}) as admin:
            found = admin.offsets([(topic, p) for p in range(self.partitions)])
        return sum(end.offset for end in found.values())

    async def committed(self):
        return await asyncio.to_thread(self._committed)

    def _committed(self):
        with Admin({"bootstrap.servers": self.kafka.bootstrap()}) as admin:
            found = admin.group_offsets(self.group)
        return {p.partition: c.offset for p, c in found.items()}

    async def close(self):
        for publisher in self._publishers:
            await publisher.close(5)


@pytest.fixture
async def make_shop(kafka, topic):
    made = []

    def make(partitions=1):
        made.append(Shop(kafka, topic, partitions))
        return made[-1]

    yield make
    for shop in made:
        await shop.close()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
async def test_error_records_are_given_back_and_committed(make_shop, protocol):
    shop = make_shop(3)
    headers = (
        ("a", b"1"),
        (TARGET_TOPIC, shop.retry.encode()),
        (RETRY_COUNT, b"0"),
        (ERROR_COUNT, b"1"),
        ("a", None),
        (ERROR_MESSAGE, b"ValueError: x"),
    )
    for partition in range(3):
        shop.fail(*(b"%d-%d" % (partition, n) for n in range(40)), partition=partition, headers=headers)
    report = await asyncio.wait_for(shop.consumer(protocol=protocol).run_now(), LONG)
    assert (report.republished, report.kept, report.waiting) == (120, (), ())
    rows = await shop.stored(120)
    assert sorted(r.value for r in rows) == sorted(b"%d-%d" % (p, n) for p in range(3) for n in range(40))
    assert {r.headers for r in rows} == {tuple(h for h in headers if h[0] != RETRY_COUNT)}
    assert {r.key for r in rows} == {b"k"}
    assert await shop.committed() == {0: 40, 1: 40, 2: 40}
    again = await asyncio.wait_for(shop.consumer(protocol=protocol).run_now(), LONG)
    assert again.republished == 0


async def test_the_order_of_a_key_is_kept(make_shop):
    shop = make_shop()
    for n in range(200):
        shop.fail(b"%d" % n, key=b"hot" if n % 2 else b"warm")
    await asyncio.wait_for(shop.consumer().run_now(), LONG)
    rows = await shop.stored(200)
    for key in (b"hot", b"warm"):
        values = [int(r.value) for r in rows if r.key == key]
        assert values == sorted(values)
        assert len(values) == 100


async def test_a_new_message_is_not_passed_over(make_shop):
    """Behind a record that was too new, older ones were handled and committed: with it, and so it was lost."""
    shop = make_shop(2)
    shop.fail(b"old-1", b"old-2")
    shop.fail(b"new", age=0)
    shop.fail(b"old-3")
    shop.fail(b"other", partition=1)
    report = await asyncio.wait_for(shop.consumer().run_now(), LONG)
    assert report.waiting == ((TopicPartition(shop.error, 0), 2),)
    assert {r.value for r in await shop.stored(3)} == {b"old-1", b"old-2", b"other"}
    assert await shop.committed() == {0: 2, 1: 1}
    later = await asyncio.wait_for(shop.consumer(new=0.0).run_now(), LONG)
    assert later.republished == 2
    assert [r.value for r in await shop.stored(5) if r.value in (b"new", b"old-3")] == [b"new", b"old-3"]


async def test_a_run_ends_when_no_message_comes(make_shop):
    shop = make_shop(2)
    consumer = shop.consumer(idle=0.5)
    began = CLOCK.monotonic()
    report = await asyncio.wait_for(consumer.run_now(), LONG)
    assert CLOCK.monotonic() - began >= 0.5
    assert report.republished == 0
    assert not consumer.is_running


async def test_a_record_without_a_fitting_target_is_kept(make_shop):
    """An error record that named no topic, or one that nobody configured, was committed and so dropped."""
    shop = make_shop(2)
    shop.fail(b"good-1")
    shop.fail(b"forged", headers=((TARGET_TOPIC, b"payments"),))
    shop.fail(b"good-2")
    shop.fail(b"other", partition=1)
    for _ in range(2):
        report = await asyncio.wait_for(shop.consumer(idle=1.5).run_now(), LONG)
        ((partition, offset, reason),) = report.kept
        assert (partition, offset) == (TopicPartition(shop.error, 0), 1)
        assert "'payments' is not one of" in reason
    assert {r.value for r in await shop.stored(2)} == {b"good-1", b"other"}
    assert await shop.ends(shop.retry) == 2
    assert await shop.committed() == {0: 1, 1: 1}


def test_a_replay_that_breaks_off_has_marked_what_was_stored(kafka, topic):
    """A record above 1 MB could not be replayed, and what lay before it was sent anew with each try."""
    roomy = {"max.message.bytes": "5000000"}
    error, small, target = topic(1, **roomy), topic(1), topic(1, **roomy)
    properties = {"bootstrap.servers": kafka.bootstrap()}
    with Producer(for_copies(properties)) as producer:
        producer.send_many([(error, b"0"), (error, bytes(2_000_000)), (error, b"2")]).result(30)

    def replay(to):
        with ErrorLog(properties, error) as log:
            return Replay(log, ReplayOptions(Filter(until=2**60), to=to)).perform(for_copies(properties))

    with pytest.raises(BrokerError, match="MESSAGE_TOO_LARGE"):
        replay(small)
    report = replay(target)
    assert report.replayed == 2, "the first was stored, and is not sent again"
    with Consumer(properties | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([TopicPartition(target, 0)])
        found: list[bytes | None] = []
        while len(found) < 2:
            found += [record.value for record in consumer.poll(5.0).records()]
    assert found == [bytes(2_000_000), b"2"]


async def test_a_kept_record_that_people_replayed_is_out_of_the_way(make_shop, topic):
    shop = make_shop(1)
    elsewhere = topic(1)
    shop.fail(b"forged", headers=((TARGET_TOPIC, b"payments"),))
    shop.fail(b"good")
    properties = {"bootstrap.servers": shop.kafka.bootstrap()}

    def by_hand():
        with ErrorLog(properties, shop.error) as log:
            return Replay(log, ReplayOptions(Filter(until=2**60), to=elsewhere)).perform(properties).replayed

    first = await asyncio.wait_for(shop.consumer().run_now(), LONG)
    assert [offset for _, offset, _ in first.kept] == [0]
    assert await asyncio.to_thread(by_hand) == 2
    second = await asyncio.wait_for(shop.consumer().run_now(), LONG)
    assert (second.skipped, second.republished, second.kept) == (2, 0, ())
    assert await shop.committed() == {0: 2}
    shop.fail(b"later")
    assert (await asyncio.wait_for(shop.consumer().run_now(), LONG)).republished == 1
    assert await shop.ends(shop.retry) == 1


async def test_forged_marks_make_nobody_pass_over_errors(make_shop):
    """The offset is honest, the map reaches beyond everything that will ever come."""
    shop = make_shop(1)
    shop.fail(b"first")
    group = GROUP_PREFIX + shop.error
    async with AsyncConsumer({"bootstrap.servers": shop.kafka.bootstrap(), "group.id": group}) as consumer:
        mark = completion_map.LogIdentity(0, (await consumer.topic_ids([shop.error]))[shop.error])
        text = completion_map.encode(0, ((1, 2**62),), mark)
        await consumer.commit({TopicPartition(shop.error, 0): OffsetAndMetadata(Offset(0), metadata=text)})
    shop.fail(b"second")
    report = await asyncio.wait_for(shop.consumer().run_now(), LONG)
    assert (report.republished, report.skipped) == (2, 0)
    with Admin({"bootstrap.servers": shop.kafka.bootstrap()}) as admin:
        found = await asyncio.to_thread(admin.group_offsets, shop.group)
    place = found[TopicPartition(shop.error, 0)]
    assert (place.offset, place.leader_epoch) == (2, 0), "an epoch to notice by that the log was cut"


async def test_groups_that_share_an_error_topic_get_their_own(make_shop, topic):
    """Of two groups with one error topic, one at random got the records of both."""
    shop = make_shop()
    stock, seen = topic(1), []
    other = RetryPolicy(stock, error=shop.error)
    shop.fail(b"o1", headers=((TARGET_TOPIC, shop.retry.encode()),))
    shop.fail(b"s1", headers=((TARGET_TOPIC, stock.encode()),))
    shop.fail(b"o2", headers=((TARGET_TOPIC, shop.retry.encode()),))
    topics = error_topics([shop.retry_policy, other], custom=[other])
    consumer = shop.consumer(topics=topics, handlers={other: lambda record: seen.append(record.value)})
    report = await asyncio.wait_for(consumer.run_now(), LONG)
    assert (report.republished, report.handled) == (2, 1)
    assert seen == [b"s1"]
    assert [r.value for r in await shop.stored(2)] == [b"o1", b"o2"]
    assert await shop.committed() == {0: 3}


async def test_worn_records_go_to_the_dead_topic(make_shop, topic):
    shop = make_shop()
    dead = topic(1)
    shop.fail(b"worn", headers=((ERROR_COUNT, b"2"), ("a", b"1")))
    shop.fail(b"fresh")
    report = await asyncio.wait_for(shop.consumer(dead=dead).run_now(), LONG)
    assert (report.exhausted, report.republished) == (1, 1)
    (row,) = await shop.stored(1, dead)
    assert (row.value, row.headers) == (b"worn", ((ERROR_COUNT, b"2"), ("a", b"1")))


async def test_a_copy_that_is_not_stored_is_not_committed(make_shop, kafka):
    """When the target did not take the copy the error record was committed all the same, and lost."""
    shop = make_shop()
    missing = f"{shop.retry}.missing"
    retry_policy = RetryPolicy("orders", missing, shop.error, retry_count=1)
    shop.fail(b"x", headers=((TARGET_TOPIC, missing.encode()),))
    publisher = shop.publisher()
    consumer = shop.consumer(topics=error_topics([retry_policy]), publisher=publisher)
    running = asyncio.create_task(consumer.run_now())
    async with asyncio.timeout(LONG):
        while missing not in publisher.problems:
            await asyncio.wait([running], timeout=0.05)
    assert (await shop.committed()).get(0, 0) == 0
    assert consumer.is_running, "it waits for the copy, however quiet the topic is"
    with Admin({"bootstrap.servers": kafka.bootstrap()}) as admin:
        await asyncio.to_thread(admin.create_topics, {missing: 1})
    report = await asyncio.wait_for(running, LONG)
    assert report.republished == 1
    assert [r.value for r in await shop.stored(1, missing)] == [b"x"]
    assert await shop.committed() == {0: 1}


async def test_after_a_stop_in_the_middle_the_rest_is_given_back(make_shop):
    shop = make_shop()
    shop.fail(*(b"%d" % n for n in range(20)))
    reached, release = asyncio.Event(), asyncio.Event()
    seen = []

    async def handler(record):
        seen.append(int(record.value))
        if len(seen) == 8:
            reached.set()
            await release.wait()

    first = shop.consumer(custom=[shop.retry_policy], handlers={shop.retry_policy: handler}, max_processing_time=60)
    running = asyncio.create_task(first.run_now())
    await asyncio.wait_for(reached.wait(), LONG)
    stop = asyncio.create_task(first.stop())
    await asyncio.wait([stop], timeout=0.1)
    assert not stop.done(), "what was begun is finished"
    release.set()
    await asyncio.wait_for(stop, LONG)
    assert (await running).handled == 8
    assert await shop.committed() == {0: 8}
    with pytest.raises(ClientClosed):
        await first.run_now()
    second = shop.consumer(
        custom=[shop.retry_policy], handlers={shop.retry_policy: lambda record: seen.append(int(record.value))}
    )
    await asyncio.wait_for(second.run_now(), LONG)
    assert seen == list(range(20)), "nothing twice, nothing left out"


@pytest.mark.slow
async def test_after_a_kill_nothing_is_lost_and_keys_are_in_order(make_shop):
    """A process that is killed in the middle: what it had published and not committed comes again, and no more."""
    shop = make_shop(2)
    for partition in range(2):
        values = [b"%d" % n for n in range(400)]
        shop.fail(*values, partition=partition, key=b"key-%d" % partition)
    main = Path(__file__).with_name("error_consumer_main.py")
    arguments = (shop.kafka.bootstrap(), shop.group, shop.error, shop.retry)
    child = await asyncio.create_subprocess_exec(sys.executable, str(main), *arguments)
    try:
        async with asyncio.timeout(LONG):
            while sum((await shop.committed()).values()) < 50:
                assert child.returncode is None, "it was too quick to be killed in the middle"
    finally:
        child.kill()
        await child.wait()
    report = await asyncio.wait_for(shop.consumer(idle=6.0).run_now(), LONG)  # the dead member is waited for
    assert 0 < report.republished < 800
    rows = await shop.stored(await shop.ends(shop.retry))
    for key in (b"key-0", b"key-1"):
        firsts = list(dict.fromkeys(int(r.value) for r in rows if r.key == key))
        assert firsts == list(range(400))
    assert await shop.committed() == {0: 400, 1: 400}


@pytest.mark.long
async def test_a_member_that_was_stopped_beyond_its_session_begins_nothing(make_shop, tmp_path):
    """It handled what was left of its records, which another member had handled meanwhile."""
    shop, records, others = make_shop(1), 20_000, set()

    async def handle(record):
        others.add(record.offset)

    shop.fail(*(b"%d" % n for n in range(records)))
    main = Path(__file__).with_name("error_consumer_main.py")
    said, journal = tmp_path / "said", tmp_path / "journal"
    arguments = (shop.kafka.bootstrap(), shop.group, shop.error, shop.retry, str(journal))
    with said.open("w") as errors:
        child = await asyncio.create_subprocess_exec(sys.executable, str(main), *arguments, stderr=errors)
    try:
        async with asyncio.timeout(LONG):
            await ended_or(child, lambda: journal.exists() and len(journal.read_bytes()) > 100)
            child.send_signal(signal.SIGSTOP)
            second = shop.consumer(idle=6.0, custom=[shop.retry_policy], handlers={shop.retry_policy: handle})
            assert (await second.run_now()).handled > 0, "the stopped member had not reached its end"
            before = journal.read_text().split()
            child.send_signal(signal.SIGCONT)
            await ended_or(child, lambda: "heartbeats are answered again" in said.read_text())
    finally:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()
    again = {int(offset) for offset in journal.read_text().split()[len(before) :]} & others
    assert not again


async def ended_or(child, condition):
    while not condition() and child.returncode is None:
        await asyncio.wait([asyncio.create_task(child.wait())], timeout=0.01)


async def test_a_stop_does_not_wait_for_brokers_that_are_not_there():
    rules = ErrorRules(error_topics([RetryPolicy("orders", error="e")]))
    publisher = Publisher(lambda: Producer({"bootstrap.servers": "127.0.0.1:1"}))
    properties = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "default.api.timeout.ms": 4_000}
    consumer = ErrorConsumer(properties, rules, ErrorSteps(publisher))
    running = asyncio.create_task(consumer.run_now())
    await asyncio.wait([running], timeout=0.2)
    began = CLOCK.monotonic()
    await asyncio.wait_for(consumer.stop(), LONG)
    assert CLOCK.monotonic() - began < 3.0
    assert (await running).republished == 0
    await publisher.close(0)


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["consumer", pytest.param("classic", marks=pytest.mark.long)])
async def test_two_members_share_one_run(make_shop, protocol):
    """A member that joined made the others quit their run."""
    shop = make_shop(6)
    first = shop.consumer(idle=8.0, protocol=protocol)
    second = shop.consumer(idle=8.0, protocol=protocol)
    runs = [asyncio.create_task(first.run_now())]
    async with asyncio.timeout(LONG):
        while not (first._run and len(first._run._shares) == 6):
            await asyncio.wait(runs, timeout=0.05)
        runs.append(asyncio.create_task(second.run_now()))
        while not all(c._run and len(c._run._shares) == 3 for c in (first, second)):
            await asyncio.wait(runs, timeout=0.05)
        assert not any(run.done() for run in runs)
        for partition in range(6):
            shop.fail(*(b"%d-%d" % (partition, n) for n in range(50)), partition=partition)
        reports = await asyncio.gather(*runs)
    assert [r.republished for r in reports] == [150, 150]
    rows = await shop.stored(300)
    assert len(rows) == len({r.value for r in rows}) == 300
    assert await shop.committed() == dict.fromkeys(range(6), 50)


async def test_a_shovel_counts_its_rounds(make_shop):
    shop = make_shop()
    shop.fail(b"x", headers=((ERROR_COUNT, b"0"), (TARGET_TOPIC, b"forged")))
    topics = shovel_topics([shop.error], shop.retry, [])
    report = await asyncio.wait_for(shop.consumer(topics=topics, counts_rounds=True).run_now(), LONG)
    assert report.republished == 1
    (row,) = await shop.stored(1)
    assert row.headers == ((ERROR_COUNT, b"1"), (TARGET_TOPIC, b"forged"))


class Often:
    """A schedule whose next moment is always a tenth of a second away."""

    def __init__(self):
        self.asked = 0

    def next_after(self, now):
        self.asked += 1
        return now + timedelta(seconds=0.1)


async def test_the_schedule_starts_runs_and_never_two(make_shop):
    shop = make_shop()
    schedule = Often()
    consumer = shop.consumer(idle=1.0, schedule=schedule)
    consumer.start()
    consumer.start()
    shop.fail(b"x")
    async with asyncio.timeout(LONG):
        while consumer.last_report is None or schedule.asked < 3:
            await asyncio.wait([consumer._timer], timeout=0.05)
            if consumer.is_running:
                assert await consumer.run_now() is None, "one at a time"
    await asyncio.wait_for(consumer.stop(), LONG)
    await consumer.stop()
    assert not consumer.is_running
    assert [r.value for r in await shop.stored(1)] == [b"x"]
    assert await shop.ends(shop.retry) == 1


async def test_a_run_that_fails_does_not_end_the_schedule(make_shop, caplog):
    shop = make_shop()
    schedule = Often()
    consumer = shop.consumer(schedule=schedule)
    consumer._properties["group.id"] = ""  # refused by whoever reads it
    consumer.start()
    async with asyncio.timeout(LONG):
        while schedule.asked < 3:
            await asyncio.wait([consumer._timer], timeout=0.05)
    assert "the run failed" in caplog.text
    await consumer.stop()
