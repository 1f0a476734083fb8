"""What a lookout makes of the brokers' answers."""

from __future__ import annotations

import pytest

from multilane.client.admin.answers import (
    CommittedOffset,
    GroupDescription,
    GroupMember,
    PartitionDescription,
    TopicDescription,
)
from multilane.clock import ManualClock
from multilane.commit.completion_map import encode
from multilane.commit.trigger_positions import Position
from multilane.errors import BrokerError, broker_error
from multilane.group import poller
from multilane.group.poller import GroupPoller
from multilane.group.snapshot import GroupSnapshot, MemberSnapshot, PartitionSnapshot, Subject
from multilane.types import Offset, OffsetAndTimestamp, TopicPartition

NO_SUCH_GROUP, NO_SUCH_TOPIC, FORBIDDEN = 69, 3, 30
P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Brokers:
    """An admin client, and what it was asked for."""

    def __init__(self, properties=None):
        self.asked, self.is_closed, self.refused = [], False, 0
        self.groups, self.committed, self.logs = {}, {}, {}

    def describe_groups(self, names):
        (name,) = names
        self.asked.append(("group", name))
        if self.refused or name not in self.groups:
            raise broker_error(self.refused or NO_SUCH_GROUP, name)
        return {name: self.groups[name]}

    def group_offsets(self, group):
        self.asked.append(("committed", group))
        return self.committed.get(group, {})

    def topics(self, names):
        known = {partition.topic for partition in self.logs}
        if set(names) - known:
            raise broker_error(NO_SUCH_TOPIC, "Metadata")
        return {
            name: TopicDescription(
                name,
                None,
                False,
                tuple(
                    PartitionDescription(p.partition, 1 if log else None, 0, (), (), ())
                    for p, log in self.logs.items()
                    if p.topic == name
                ),
            )
            for name in names
        }

    def offsets(self, partitions, at="latest"):
        self.asked.append((at, tuple(sorted(partitions))))
        return {p: OffsetAndTimestamp(Offset(self.logs[p][at == "latest"]), -1) for p in partitions}

    def close(self):
        self.is_closed = True


@pytest.fixture
def brokers(monkeypatch):
    made = Brokers()
    made.logs = {P0: (5, 100), P1: None}
    monkeypatch.setattr(poller, "Admin", lambda properties: made)
    return made


def stable(group: str, *members: GroupMember) -> GroupDescription:
    return GroupDescription(group, "consumer", "Stable", "consumer", "uniform", 1, members)


def look(*subjects: Subject) -> list[GroupSnapshot]:
    with GroupPoller(subjects, {"": {}}, ManualClock(7.0)) as looking:
        return looking.look()


def test_a_group_its_members_and_what_is_settled_beyond_its_commit(brokers):
    brokers.groups["g"] = stable("g", GroupMember("m", None, "shop", "/10.0.0.1", (P0, P1)))
    brokers.committed["g"] = {P0: CommittedOffset(Offset(10), -1, encode(10, [(11, 13), (20, 20)]))}
    (seen,) = look(Subject("orders", "g", topics=("orders",)))
    assert (seen.at, seen.is_there, seen.protocol, seen.state) == (7.0, True, "consumer", "Stable")
    assert seen.members == (MemberSnapshot("m", "shop", "10.0.0.1", (P0, P1)),)
    assert seen.partitions == {P0: PartitionSnapshot(5, 100, 10, 4), P1: PartitionSnapshot(None, None)}
    assert brokers.is_closed
    assert [what for what, _ in brokers.asked] == ["group", "committed", "latest", "earliest"], "no lag below zero"


def test_a_text_that_is_not_ours_says_nothing(brokers):
    brokers.groups["g"] = stable("g")
    brokers.committed["g"] = {P0: CommittedOffset(Offset(10), -1, encode(11, [(12, 13)]))}
    (seen,) = look(Subject("g", "g"))
    assert seen.partitions[P0].beyond == 0


def test_what_does_not_exist_is_something_to_see(brokers):
    (seen,) = look(Subject("orders", "g", topics=("orders", "orders.retry"), retry="orders.retry"))
    assert (seen.is_there, seen.state, seen.members, seen.missing) == (False, "", (), ("orders.retry",))
    assert set(seen.partitions) == {P0, P1}
    (seen,) = look(Subject("g", "g"))
    assert (seen.is_there, seen.partitions, seen.missing) == (False, {}, ())
    brokers.logs.clear()
    (seen,) = look(Subject("orders", "g", topics=("orders",)))
    assert (seen.partitions, seen.missing) == ({}, ("orders",))


def test_a_group_by_its_name_is_asked_for_its_topics(brokers):
    member = GroupMember("m", None, "c", "h", (TopicPartition("b", 0),), subscription=("c",))
    brokers.logs = {TopicPartition(topic, 0): (0, 1) for topic in "abcd"}
    brokers.groups["g"] = stable("g", member, GroupMember("n", None, "c", "h", None))
    brokers.committed["g"] = {TopicPartition("a", 0): CommittedOffset(Offset(1), -1, "")}
    (seen,) = look(Subject("g", "g"))
    assert [partition.topic for partition in seen.partitions] == ["a", "b", "c"]


def test_consumers_of_one_group_share_the_questions(brokers):
    brokers.groups["g"] = stable("g")
    brokers.logs[TopicPartition("other", 0)] = (0, 3)
    first, second = look(Subject("one", "g", topics=("orders",)), Subject("two", "g", topics=("other",)))
    assert (set(first.partitions), set(second.partitions)) == ({P0, P1}, {TopicPartition("other", 0)})
    assert len(brokers.asked) == 4


def test_a_refusal_is_an_error(brokers):
    brokers.refused = FORBIDDEN
    with pytest.raises(BrokerError, match="GROUP_AUTHORIZATION_FAILED"):
        look(Subject("g", "g"))


def test_each_trigger_is_where_its_named_position_is(brokers):
    """The commits name them, so nobody has to know the configuration. One they do not name begins with the group."""
    positions = {"index": Position(40), "mail": Position(20, ((30, 39),)), "gone": Position(20, (), 1_700_000_000)}
    brokers.groups["g"] = stable("g")
    brokers.committed["g"] = {P0: CommittedOffset(Offset(20), -1, encode(20, (), None, positions))}
    configured = Subject("new", "g", "main", ("orders",), is_trigger=True)
    subject = Subject("g", "g", "main", triggers=(configured,))
    with GroupPoller([subject], {"main": {}}) as found:
        (snapshot,) = found.look()
    assert snapshot.partitions[P0] == PartitionSnapshot(5, 100, 20, 0)
    assert {one.subject.name: one.partitions[P0] for one in snapshot.triggers} == {
        "new": PartitionSnapshot(5, 100, 20),
        "index": PartitionSnapshot(5, 100, 40),
        "mail": PartitionSnapshot(5, 100, 20, 10),
        "gone": PartitionSnapshot(5, 100, 20),
    }
    assert {one.subject.name: one.absent_since for one in snapshot.triggers if one.absent_since} == {
        "gone": 1_700_000_000
    }


def test_a_group_whose_commits_name_nobody_has_no_triggers(brokers):
    brokers.groups["g"] = stable("g")
    brokers.committed["g"] = {P0: CommittedOffset(Offset(20), -1, encode(20, ((30, 39),)))}
    with GroupPoller([Subject("g", "g", "main")], {"main": {}}) as found:
        (snapshot,) = found.look()
    assert snapshot.triggers == ()
    assert snapshot.partitions[P0] == PartitionSnapshot(5, 100, 20, 10)


def test_triggers_of_other_topics_belong_to_another_member(brokers):
    """`same-topic`: two members of one group, each with its own triggers."""
    other = TopicPartition("users", 0)
    brokers.logs |= {other: (0, 10)}
    brokers.groups["g"] = stable("g")
    brokers.committed["g"] = {
        P0: CommittedOffset(Offset(20), -1, encode(20, (), None, {"index": Position(20)})),
        other: CommittedOffset(Offset(5), -1, encode(5, (), None, {"mail": Position(5)})),
    }
    with GroupPoller([Subject("index", "g", "main", ("orders",)), Subject("g", "g", "main")], {"main": {}}) as found:
        of_topic, of_group = found.look()
    assert [one.subject.name for one in of_topic.triggers] == []
    assert [one.subject.name for one in of_group.triggers] == ["index", "mail"]
