"""What happens to partitions, positions and buffered records while a group shares them anew."""

from __future__ import annotations

import asyncio
import threading

import pytest

from broker.flow import Flow
from broker.group_members import (
    COOPERATIVE,
    EAGER,
    INCREMENTAL,
    KIP_848,
    PROTOCOLS,
    VARIANTS,
    LiveGroup,
    Member,
    fill,
    membership,
    new_group,
    partitions_of,
)
from broker.reading import Deadline
from multilane import AsyncConsumer, TopicPartition
from multilane.client.rebalance import RebalanceListener
from multilane.errors import ClientClosed

pytestmark = [pytest.mark.broker, pytest.mark.cluster]


@pytest.mark.parametrize("variant", VARIANTS)
def test_eager_members_give_up_everything_and_others_only_what_moves(kafka, topic, variant):
    partitions = partitions_of(topic(4), 4)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        [first] = live_group.join()
        live_group.settle(partitions)
        first.steps.clear()
        [second] = live_group.join()
        live_group.settle(partitions)
        given_up = [p for step in first.changes("revoked") for p in step]
        begun = [p for step in first.changes("assigned") for p in step]
        if variant in INCREMENTAL:
            assert sorted(given_up) == sorted(second.assignment)
            assert not begun
        else:
            assert sorted(given_up) == partitions
            assert sorted(begun) == sorted(first.assignment)
        assert not first.changes("lost")


@pytest.mark.parametrize("variant", VARIANTS)
def test_partitions_are_ours_until_the_listener_is_through(kafka, topic, variant):
    """The listener runs in poll(), on the thread that polls; nobody else has the partitions before it returns, and
    what it commits is where the next owner begins."""
    partitions = partitions_of(topic(4), 4)
    ends = fill(kafka, partitions, 0, 100)
    with LiveGroup(kafka, variant, [partitions[0].topic], enable_auto_commit=False) as live_group:
        [first] = live_group.join()
        live_group.settle(partitions)
        live_group.until(lambda: live_group.has_read(ends))
        threads: list[threading.Thread] = []
        read_before: dict[TopicPartition, int] = {}
        [second] = live_group.join()

        def hand_over(change, given_up):
            if change != "revoked":
                return
            threads.append(threading.current_thread())
            wait = Deadline(0.7)  # several heartbeats
            while not wait.over:
                second.poll()
                assert not second.assignment & given_up
            first.consumer.commit({p: 37 + p.partition for p in given_up})
            read_before.update({p: len(first.offsets[p]) for p in partitions})

        first.on_step = hand_over
        live_group.settle(partitions)
        live_group.until(lambda: all(second.count(p) for p in second.assignment))
        assert set(threads) == {threading.current_thread()}
        for partition in second.assignment:
            assert second.offsets[partition][0] == 37 + partition.partition
        if variant not in INCREMENTAL:  # what was given up and came back begins there too
            live_group.until(lambda: all(first.count(p) > read_before[p] for p in first.assignment))
            for partition in first.assignment:
                assert first.offsets[partition][read_before[partition]] == 37 + partition.partition
        first.on_step = None


class Sleeper:
    """A member that is polled by a thread of its own and stays in its listener until it is told to go on."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.is_inside = False
        self.entered, self.release = threading.Event(), threading.Event()
        self._end = threading.Event()
        self._errors: list[BaseException] = []
        member.on_step = self._on_step
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Sleeper:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._end.set()
        self._thread.join()
        self.member.on_step = None
        assert not self._errors, self._errors

    def _on_step(self, change: str, _partitions: frozenset[TopicPartition]) -> None:
        if change == "revoked":
            self.is_inside = True
            self.entered.set()
            self.release.wait(30)
            self.is_inside = False

    def _run(self) -> None:
        try:
            while not self._end.is_set():
                self.member.poll()
        except BaseException as error:
            self._errors.append(error)
            raise


@pytest.mark.parametrize("variant", INCREMENTAL)
def test_kept_partitions_never_stop_while_another_member_takes_its_time(kafka, topic, variant):
    partitions = partitions_of(topic(6), 6)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group, Flow(kafka, partitions[0].topic, 6) as flow:
        sleeps, reads = live_group.join(2)
        live_group.settle(partitions)
        live_group.until(lambda: all(sum(m.count(p) for m in live_group.members) > 20 for p in partitions))
        reads.steps.clear()
        live_group.members.remove(sleeps)
        with Sleeper(sleeps) as sleeper:
            [third] = live_group.join()
            live_group.until(sleeper.entered.is_set)
            kept = reads.assignment  # it may have to give up one of these yet: those it still has at the end count
            before = {p: reads.count(p) for p in kept}
            goal = Deadline(3.0)  # the step is open all the while
            while not goal.over:
                reads.poll()
                third.poll()
            assert sleeper.is_inside
            kept &= reads.assignment
            assert len(kept) >= 2
            assert all(reads.count(p) > before[p] + 50 for p in kept), "the flow stood still"
            assert not sleeps.assignment & third.assignment
        live_group.members.append(sleeps)
        live_group.settle(partitions)
        kept &= reads.assignment
        flow.end()
        ends = {TopicPartition(partitions[0].topic, p): len(values) for p, values in flow.acknowledged.items()}
        live_group.until(lambda: live_group.has_read(ends))
        for partition in kept:  # one owner all the time: no record twice, none left out
            read = reads.offsets[partition]
            assert read == list(range(read[0], ends[partition]))
        assert not kept & frozenset().union(*reads.changes("revoked"), *reads.changes("assigned"))


@pytest.mark.parametrize(
    "variant", [*INCREMENTAL, EAGER[0], *(pytest.param(one, marks=pytest.mark.long) for one in EAGER[1:])]
)
def test_buffered_records_of_a_revoked_partition_are_never_delivered(kafka, topic, variant):
    """`Member.poll` checks every block against what the listener was told. Each record is delivered once in all: had
    the buffer been handed out after the commit in the revocation, the next owner would read it again."""
    partitions = partitions_of(topic(4), 4)
    ends = fill(kafka, partitions, 0, 5_000)
    with LiveGroup(kafka, variant, [partitions[0].topic], max_poll_records=50) as live_group:
        [first] = live_group.join()
        live_group.until(lambda: first.count() >= 500)  # far more than that lies in the buffer
        given_up: dict[TopicPartition, int] = {}
        first.on_step = lambda change, gone: given_up.update(
            {p: first.count(p) for p in gone} if change == "revoked" else {}
        )
        [second] = live_group.join()
        live_group.settle(partitions)
        assert given_up
        live_group.until(lambda: live_group.has_read(ends))
        for partition in partitions:
            read = first.offsets.get(partition, []) + second.offsets.get(partition, [])
            assert len(read) == len(set(read)) == 5_000
        for partition in second.assignment:
            assert first.count(partition) == given_up[partition]


@pytest.mark.parametrize("variant", VARIANTS)
def test_pauses_and_positions_outlive_a_rebalance_for_kept_partitions_only(kafka, topic, variant):
    partitions = partitions_of(topic(4), 4)
    ends = fill(kafka, partitions, 0, 20)
    with LiveGroup(kafka, variant, [partitions[0].topic], enable_auto_commit=False) as live_group:
        [first] = live_group.join()
        live_group.settle(partitions)
        live_group.until(lambda: live_group.has_read(ends))
        first.consumer.commit(dict.fromkeys(partitions, 3))
        first.consumer.pause(partitions)
        for partition in partitions:
            first.consumer.seek(partition, 10)
        [second] = live_group.join()
        live_group.settle(partitions)
        moved = second.assignment
        first.offsets.clear()
        live_group.until(lambda: all(second.offsets.get(p) == list(range(3, 20)) for p in moved))
        kept = first.assignment
        if variant in INCREMENTAL:
            assert first.consumer.paused == kept
            assert {first.consumer.position(p) for p in kept} == {10}
            first.consumer.resume(kept)
            live_group.until(lambda: all(first.offsets.get(p) == list(range(10, 20)) for p in kept))
        else:
            assert not first.consumer.paused
            live_group.until(lambda: all(first.consumer.position(p) == 20 for p in kept))
        first.consumer.pause(kept)
        first.offsets.clear()
        live_group.leave(second)
        live_group.settle(partitions)
        assert first.consumer.paused == (kept if variant in INCREMENTAL else frozenset())
        live_group.until(lambda: all(first.offsets.get(p) == list(range(3, 20)) for p in moved))


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_a_listener_may_seek_and_pause_what_it_is_given(kafka, topic, variant):
    """Nothing is handed out before it returns: not a record from where the group stood."""
    seeks, pauses = partitions = partitions_of(topic(2), 2)
    fill(kafka, partitions, 0, 20)
    with LiveGroup(kafka, variant, [seeks.topic]) as live_group:
        [member] = live_group.join()

        def place(change, given):
            if change == "assigned" and given:
                member.consumer.seek(seeks, 12)
                member.consumer.pause([pauses])

        member.on_step = place
        live_group.until(lambda: member.offsets.get(seeks) == list(range(12, 20)))
        assert member.offsets.keys() == {seeks}
        member.consumer.resume([pauses])
        live_group.until(lambda: member.offsets.get(pauses) == list(range(20)))
        member.on_step = None


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_an_error_in_a_listener_is_raised_and_the_rebalance_goes_on(kafka, topic, variant):
    partitions = partitions_of(topic(2), 2)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        [first] = live_group.join()
        live_group.settle(partitions)

        def stumble(change, _partitions):
            first.on_step = None
            raise RuntimeError("the application stumbled")

        first.on_step = stumble
        live_group.join()
        with pytest.raises(RuntimeError, match="stumbled"):
            live_group.until(lambda: len(live_group.members[1].assignment) == 1)
        live_group.settle(partitions)


def long_session(variant):
    """Longer than any test waits. Under KIP-848 it is the broker's, and short."""
    return {} if variant == KIP_848 else {"session_timeout_ms": 60_000}


@pytest.mark.parametrize("variant", PROTOCOLS)
@pytest.mark.parametrize("change", ["assigned", "revoked"])
def test_a_listener_may_close_its_consumer(kafka, topic, variant, change):
    """That commits and leaves the group as any close does: nobody waits for its session to end."""
    partitions = partitions_of(topic(2), 2)
    fill(kafka, partitions, 0, 20)
    with LiveGroup(kafka, variant, [partitions[0].topic], **long_session(variant)) as live_group:
        [first] = live_group.join()
        live_group.until(lambda: all(first.offsets.get(p) == list(range(20)) for p in partitions))
        [second] = live_group.join()
        stays, leaves = (first, second) if change == "assigned" else (second, first)
        closed: list[str] = []

        def close(told, _partitions):
            if told == change:
                closed.append(told)
                leaves.consumer.close()

        leaves.on_step = close
        with pytest.raises(ClientClosed, match=r"closed during poll\(\)"):
            live_group.until(lambda: False)
        live_group.members.remove(leaves)
        assert set(closed) == {change}
        live_group.until(lambda: stays.assignment == frozenset(partitions))
        if change == "revoked":
            committed = stays.consumer.committed(partitions)
            assert {p: found and found.offset for p, found in committed.items()} == dict.fromkeys(partitions, 20)


class AsyncTeller(RebalanceListener):
    """Commits in its own way before it gives anything up."""

    def __init__(self, consumer: AsyncConsumer) -> None:
        self.consumer = consumer
        self.told: list[tuple[str, frozenset[TopicPartition]]] = []

    async def on_assigned(self, partitions):
        self.told.append(("assigned", partitions))

    async def on_revoked(self, partitions):
        await self.consumer.commit({p: 7 for p in partitions})
        self.told.append(("revoked", partitions))


@pytest.mark.parametrize("variant", [*PROTOCOLS, COOPERATIVE])
async def test_asyncio_consumers_have_listeners_that_wait(kafka, topic, variant):
    partitions = partitions_of(topic(2), 2)
    fill(kafka, partitions, 0, 10)
    usual = {"bootstrap.servers": kafka.bootstrap(), "group.id": new_group(), "auto.offset.reset": "earliest"}
    properties = {**usual, **membership(variant), "enable.auto.commit": False}
    async with AsyncConsumer(properties) as first, AsyncConsumer(properties) as second:
        listeners = AsyncTeller(first), AsyncTeller(second)
        begun: dict[TopicPartition, int] = {}

        async def poll(consumer: AsyncConsumer) -> None:
            for block in await consumer.poll(0.02):
                begun.setdefault(TopicPartition(block.topic, block.partition), int(block.offsets[0]))

        async def until(goal) -> None:
            deadline = Deadline(30)
            while not goal():
                deadline.check("polling")
                await asyncio.gather(*(poll(c) for c in (first, second) if c.subscription is not None))

        first.subscribe([partitions[0].topic], listeners[0])
        await until(lambda: first.assignment == frozenset(partitions) and len(begun) == 2)
        begun.clear()
        second.subscribe([partitions[0].topic], listeners[1])
        await until(lambda: len(first.assignment) == len(second.assignment) == 1 and second.assignment <= begun.keys())
        assert all(begun[p] == 7 for p in second.assignment)
        assert second.assignment <= frozenset().union(*(p for told, p in listeners[0].told if told == "revoked"))
        assert await first.committed(list(second.assignment)) != {}
        assert (variant == KIP_848) == (first.group_metadata().protocol == "consumer")
    assert listeners[1].told[-1][0] == "revoked"
