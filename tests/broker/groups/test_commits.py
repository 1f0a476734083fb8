"""Committed offsets: what a group is told, when, and what it is not told."""

from __future__ import annotations

import threading

import pytest

from broker.group_members import (
    COOPERATIVE,
    KIP_848,
    PROTOCOLS,
    LiveGroup,
    committed_in,
    fill,
    new_group,
    partitions_of,
)
from broker.group_processes import ProcessMember
from broker.reading import CLOCK, Deadline
from multilane import Consumer, OffsetAndMetadata
from multilane.errors import CommitDuringRebalance, CommitRefused, MultilaneError
from multilane.metrics.observer import Counts

pytestmark = [pytest.mark.broker, pytest.mark.cluster]

CYCLES = 50
COMMIT_EVERY = 0.05


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_commits_can_be_read_back(kafka, topic, variant):
    partitions = partitions_of(topic(2), 2)
    ends = fill(kafka, partitions, 0, 10)
    with LiveGroup(kafka, variant, [partitions[0].topic], enable_auto_commit=False) as live_group:
        [member] = live_group.join()
        live_group.until(lambda: live_group.has_read(ends))
        assert member.consumer.committed(partitions) == dict.fromkeys(partitions)
        member.consumer.commit()
        assert committed_in(kafka, live_group.group, partitions) == ends
        told = OffsetAndMetadata(4, 0, "a note")
        member.consumer.commit({partitions[0]: told})
        assert member.consumer.committed(partitions[:1]) == {partitions[0]: told}
        member.consumer.commit({partitions[1]: 5})
        assert committed_in(kafka, live_group.group, partitions) == {partitions[0]: 4, partitions[1]: 5}


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_commits_that_nobody_waits_for_are_answered_in_poll_and_in_order(kafka, topic, variant):
    partitions = partitions_of(topic(1), 1)
    fill(kafka, partitions, 0, 10)
    answers: list[tuple[int, BaseException | None, threading.Thread]] = []

    def answered(offsets, error):
        answers.append((offsets[partitions[0]].offset, error, threading.current_thread()))

    with LiveGroup(kafka, variant, [partitions[0].topic], enable_auto_commit=False) as live_group:
        [member] = live_group.join()
        live_group.until(member.count)
        for offset in range(1, 9):
            member.consumer.commit_async({partitions[0]: offset}, answered)
        member.consumer.commit({partitions[0]: 9})  # whatever was asked for before is done when this returns
        assert not answers
        live_group.until(lambda: len(answers) == 8)
        here = threading.current_thread()
        assert answers == [(offset, None, here) for offset in range(1, 9)]
        assert committed_in(kafka, live_group.group, partitions) == {partitions[0]: 9}


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_a_partition_of_another_member_cannot_be_committed(kafka, topic, variant):
    """The broker would take it."""
    partitions = partitions_of(topic(2), 2)
    ends = fill(kafka, partitions, 0, 10)
    with LiveGroup(kafka, variant, [partitions[0].topic], enable_auto_commit=False) as live_group:
        first, second = live_group.join(2)
        live_group.settle(partitions)
        live_group.until(lambda: live_group.has_read(ends))
        [foreign] = second.assignment
        with pytest.raises(CommitRefused, match="assigned"):
            first.consumer.commit({foreign: 9})
        with pytest.raises(CommitRefused, match="assigned"):
            first.consumer.commit_async({**dict.fromkeys(first.assignment, 1), foreign: 9})
        assert committed_in(kafka, live_group.group, partitions) == {}
        # What the one had read before the other took it over is read again: nothing was committed.
        live_group.until(lambda: second.consumer.position(foreign) == ends[foreign])
        live_group.until(lambda: all(first.consumer.position(p) == ends[p] for p in first.assignment))
        second.consumer.commit()
        first.consumer.commit()
        assert committed_in(kafka, live_group.group, partitions) == ends


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_who_is_no_member_commits_nothing_into_a_live_group(kafka, topic, variant):
    partitions = partitions_of(topic(1), 1)
    with LiveGroup(kafka, variant, [partitions[0].topic]) as live_group:
        live_group.join()
        live_group.settle(partitions)
        with Consumer({"bootstrap.servers": kafka.bootstrap(), "group.id": live_group.group}) as stranger:
            stranger.assign(partitions)
            with pytest.raises(CommitRefused, match="members"):
                stranger.commit({partitions[0]: 3})


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_partitions_assigned_by_hand_may_use_a_group_to_remember(kafka, topic, variant):
    partitions = partitions_of(topic(1), 1)
    fill(kafka, partitions, 0, 10)
    usual = {"bootstrap.servers": kafka.bootstrap(), "group.id": new_group(), "auto.offset.reset": "earliest"}
    for first in (0, 6):
        with Consumer({**usual, "enable.auto.commit": False}) as consumer:
            consumer.assign(partitions)
            assert consumer.position(partitions[0]) == first
            consumer.commit({partitions[0]: 6})


# --- committed by itself ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_records_whose_poll_was_not_followed_by_another_come_again(kafka, topic, variant, eventually):
    """A process is killed while it works on what its last poll handed out; offsets are committed every 10 ms."""
    [partition] = partitions = partitions_of(topic(1), 1)
    group = new_group()
    with ProcessMember(
        kafka, group, [partition.topic], variant, auto_commit_interval_ms=10, max_poll_records=7
    ) as member:
        fill(kafka, partitions, 0, 7)
        eventually(lambda: committed_in(kafka, group, partitions) == {partition: 7})  # it has polled again
        member.order("hold")
        eventually(lambda: member.told("hold"))
        fill(kafka, partitions, 7, 14)
        member.order("take")
        eventually(lambda: len(member.offsets[partition]) == 14)
        deadline = Deadline(0.5)
        while not deadline.over:
            assert committed_in(kafka, group, partitions) == {partition: 7}
        member.kill()
    with LiveGroup(kafka, variant, [partition.topic], group=group) as live_group:
        [heir] = live_group.join()
        live_group.until(lambda: heir.offsets.get(partition) == list(range(7, 21)))


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_after_an_exception_the_last_poll_is_not_committed(kafka, topic, variant):
    [partition] = partitions = partitions_of(topic(1), 1)
    fill(kafka, partitions, 0, 20)
    with LiveGroup(kafka, variant, [partition.topic], max_poll_records=5) as live_group:
        [member] = live_group.join()
        live_group.until(lambda: member.count() >= 10)
        read = member.count()
        with pytest.raises(RuntimeError), member.consumer:
            raise RuntimeError("while at work on what poll handed out")
    assert committed_in(kafka, live_group.group, partitions) == {partition: read - 5}


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_closing_commits_what_was_handed_out(kafka, topic, variant):
    [partition] = partitions = partitions_of(topic(1), 1)
    fill(kafka, partitions, 0, 20)
    with LiveGroup(kafka, variant, [partition.topic], max_poll_records=5) as live_group:
        [member] = live_group.join()
        live_group.until(member.count)
        live_group.leave(member)
        assert committed_in(kafka, live_group.group, partitions) == {partition: member.count()}


# --- the application is away -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("variant", PROTOCOLS)
def test_who_does_not_poll_keeps_its_partitions_until_max_poll_interval(kafka, topic, variant):
    """The session ends long before that: heartbeats go on while the application works."""
    partitions = partitions_of(topic(2), 2)
    sessions = {} if variant == KIP_848 else {"session_timeout_ms": 1_000}
    limit = 5.0 if variant == KIP_848 else 3.0  # the brokers' sessions of KIP-848 take 3 s
    with LiveGroup(
        kafka, variant, [partitions[0].topic], max_poll_interval_ms=int(limit * 1_000), **sessions
    ) as live_group:
        works, polls = live_group.join(2)
        live_group.settle(partitions)
        mine = works.assignment
        live_group.members.remove(works)
        since = CLOCK.monotonic()
        works.steps.clear()
        while CLOCK.monotonic() - since < limit - 0.5:
            live_group.turn()
            assert len(polls.assignment) <= 1, "the working member was put out while it had time"
        live_group.until(lambda: polls.assignment == frozenset(partitions), timeout=15)
        assert works.assignment == mine  # it does not know yet
        with pytest.raises(CommitRefused):
            works.consumer.commit(dict.fromkeys(mine, 0))
        live_group.members.append(works)
        live_group.settle(partitions)
        changes = [step for step in works.steps if step[1]]  # it may have left in the middle of an empty one
        assert changes[0] == ("lost", mine)
        assert changes[1][0] == "assigned"
        live_group.members.remove(works)
        live_group.until(lambda: polls.assignment == frozenset(partitions), timeout=15)
        mine = works.assignment
        works.close()
        assert works.steps[-1] == ("lost", mine)


# --- through many rebalances -----------------------------------------------------------------------------------------


class Committer:
    """Commits every 50 ms what a member was handed out, waiting for it or not in turn."""

    def __init__(self, live_group: LiveGroup) -> None:
        self.live_group = live_group
        self.next = CLOCK.monotonic()
        self.number = 0
        self.refused: list[MultilaneError] = []

    def turn(self) -> None:
        self.live_group.turn()
        if CLOCK.monotonic() < self.next:
            return
        self.next = CLOCK.monotonic() + COMMIT_EVERY
        for member in self.live_group.members:
            self.number += 1
            try:
                if self.number % 2:
                    member.consumer.commit()
                else:
                    member.consumer.commit_async(None, self._answered)
            except CommitRefused as error:
                self.refused.append(error)

    def _answered(self, _offsets, error):
        if error is not None:
            assert isinstance(error, CommitRefused), error
            self.refused.append(error)

    def until(self, goal, timeout=30.0):
        deadline = Deadline(timeout)
        while not goal():
            assert not deadline.over, str(self.live_group)
            self.turn()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("variant", [pytest.param(COOPERATIVE, marks=pytest.mark.long), KIP_848])
def test_commits_through_fifty_joins_and_leaves(kafka, topic, variant):
    partitions = partitions_of(topic(4), 4)
    counts = Counts()
    brisk = {} if variant == KIP_848 else {"heartbeat_interval_ms": 100}
    with LiveGroup(
        kafka, variant, [partitions[0].topic], enable_auto_commit=False, observer=counts, **brisk
    ) as live_group:
        [stays] = live_group.join()
        committer = Committer(live_group)
        ends = fill(kafka, partitions, 0, 20)
        committer.until(lambda: stays.assignment == frozenset(partitions))
        for cycle in range(CYCLES):
            [guest] = live_group.join()
            committer.until(lambda guest=guest: len(guest.assignment) == len(stays.assignment) == 2)
            if cycle % 5 == 0:
                ends = fill(kafka, partitions, 0, 20)
            guest.consumer.commit()
            live_group.leave(guest)
            committer.until(lambda: stays.assignment == frozenset(partitions))
        committer.until(lambda: live_group.has_read(ends))
        stays.consumer.commit()
        assert committed_in(kafka, live_group.group, partitions) == ends
        assert live_group.offsets() == {p: set(range(end)) for p, end in ends.items()}
        everybody = [stays, *live_group.gone]
        assert not any(member.changes("lost") for member in everybody)
        assert counts.total("group.fenced") == 0
        # A cycle is a join and a leave: at most two rebalances for the one and one for the other, in two members.
        assert counts.total("group.rebalances") <= 6 * CYCLES
        assert all(isinstance(error, CommitDuringRebalance) for error in committer.refused), committer.refused
        assert len(committer.refused) <= 4 * CYCLES
