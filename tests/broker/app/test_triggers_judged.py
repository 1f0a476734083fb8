"""The guarantees, for each trigger by itself, while triggers and members come and go and records flow."""

from __future__ import annotations

import asyncio
import itertools
from collections import defaultdict
from typing import Any

import pytest

from broker.app.conftest import Shop, running
from broker.app.test_triggers_come_and_go import Changing
from lane_world import until
from multilane.client.produce.producer import Producer
from multilane.clock import SystemClock
from multilane.testing import (
    AtLeastOnce,
    Committed,
    Ended,
    Event,
    NoCommitPastUnsettled,
    NoDuplicateWithoutRestart,
    NoSameKeyOverlap,
    PerKeyOrder,
    Produced,
    RecordPlace,
    Started,
    in_order,
    violations,
)
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]
CLOCK = SystemClock()
PARTITIONS = 3


class Judged:
    """What became of the records of one topic, trigger by trigger."""

    def __init__(self, shop: Shop) -> None:
        self.shop = shop
        shop.main = shop.make_topic(PARTITIONS)
        self.events: dict[str, list[Event]] = defaultdict(list)
        self.produced: list[Event] = []
        self.commits: list[Event] = []
        self.numbers = itertools.count()
        self.calls = itertools.count()

    def member(self, name: str, names: list[str], late: list[str], **settings: Any) -> Changing:
        """An app whose handlers tell what they do."""
        member = Changing(self.shop, names, late, offsetInitial="oldest", **settings)
        for trigger in names:
            function = self._handler(name, trigger)
            member.app.unsubscribe(trigger).result(0)
            member.app.listener(trigger)(function)
        member.functions = {trigger: self._handler(name, trigger) for trigger in (*names, *late)}
        return member

    def _handler(self, member: str, trigger: str):
        async def handle(record: Record) -> None:
            call, events = next(self.calls), self.events[trigger]
            facts = record.value.decode(), record.key.decode(), RecordPlace(*record[:3])
            events.append(Started(CLOCK.monotonic(), member, call, *facts))
            try:
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.002)
            except asyncio.CancelledError:
                events.append(Ended(CLOCK.monotonic(), member, call, *facts, is_ok=False))
                raise
            events.append(Ended(CLOCK.monotonic(), member, call, *facts))

        return handle

    def produce(self, many: int) -> None:
        with Producer({"bootstrap.servers": self.shop.bootstrap}) as producer:
            records = [(str(n), f"k{n % 17}") for n in itertools.islice(self.numbers, many)]
            at = CLOCK.monotonic()
            sent = [(r, k, producer.send(self.shop.main, r.encode(), k.encode())) for r, k in records]
            for record, key, future in sent:
                stored = future.result(30)
                place = RecordPlace(self.shop.main, stored.partition, int(stored.offset))
                self.produced.append(Produced(at, record, key, place))

    def look(self, member: Changing) -> None:
        """At the commits of the group, and at the positions that they name."""
        for (topic, partition), (offset, text) in member.commits().items():
            now = CLOCK.monotonic()
            self.commits.append(Committed(now, topic, partition, offset, text.runs))
            for name, position in text.positions.items():
                self.events[name].append(Committed(now, topic, partition, position.offset, position.runs))

    def handled(self, trigger: str) -> int:
        return sum(isinstance(event, Ended) and event.is_ok for event in self.events[trigger])

    def violations(self, trigger: str, *, is_whole: bool = True) -> list[Any]:
        guarantees = [PerKeyOrder(), NoSameKeyOverlap(), NoDuplicateWithoutRestart(), NoCommitPastUnsettled()]
        whole = [AtLeastOnce()] if is_whole else []
        return violations(in_order(self.produced, self.events[trigger]), [*guarantees, *whole])

    def violations_of_the_group(self, trigger: str) -> list[Any]:
        """The plain commit, which other tools see, for a trigger that was there all the time."""
        own = [event for event in self.events[trigger] if not isinstance(event, Committed)]
        return violations(in_order(self.produced, own, self.commits), [NoCommitPastUnsettled()])


async def test_triggers_come_and_go_under_rebalances(shop):
    judged = Judged(shop)
    await asyncio.to_thread(judged.produce, 150)
    one, two = judged.member("one", ["a", "b"], ["c"]), judged.member("two", ["a", "b"], ["c"])
    async with running(one.app) as first:
        await until(lambda: judged.handled("a") > 50 or first.done())
        async with running(two.app) as second:  # a rebalance
            flow = asyncio.ensure_future(asyncio.to_thread(judged.produce, 300))
            await one.subscribe("c", begin="earliest")
            await two.subscribe("c", begin="earliest")
            await until(lambda: judged.handled("c") > 100 or first.done() or second.done())
            await asyncio.to_thread(judged.look, one)
            for member in (one, two):
                await member.unsubscribe("b")
            await flow
            await asyncio.to_thread(judged.look, one)
        await second
        await asyncio.to_thread(judged.produce, 100)
        await until(lambda: all(judged.handled(trigger) >= 550 for trigger in "ac") or first.done())
        await until(lambda: sum(offset for offset, _ in one.commits().values()) == 550)
        await asyncio.to_thread(judged.look, one)
        await until(lambda: one.named() == {"a", "c"})
    await first
    await asyncio.to_thread(judged.look, one)
    assert judged.violations("a") == []
    assert judged.violations_of_the_group("a") == []
    assert judged.violations("c") == []
    assert judged.violations("b", is_whole=False) == []


async def test_a_consumer_that_fails_under_load_repeats_only_what_was_in_flight(shop):
    """Its network thread dies twice while records flow. Each trigger goes on where it was."""
    from broker.app.test_triggers_come_and_go import crash_network

    judged = Judged(shop)
    await asyncio.to_thread(judged.produce, 100)
    one = judged.member("one", ["a", "b"], [])
    async with running(one.app) as task:
        for round_ in (1, 2):
            flow = asyncio.ensure_future(asyncio.to_thread(judged.produce, 200))
            await until(lambda done=round_ * 100: judged.handled("a") > done or task.done())
            crash_network(one)
            await flow
            enough = 100 + 200 * round_
            await until(lambda n=enough: all(judged.handled(trigger) >= n for trigger in "ab") or task.done(), 60)
        await until(lambda: sum(offset for offset, _ in one.commits().values()) == 500)
        await asyncio.to_thread(judged.look, one)
    await task
    for trigger in "ab":
        assert judged.violations(trigger) == []
        assert judged.handled(trigger) == 500, "an interrupted call did not end well, so nothing ends well twice"
