"""What the leader of a classic group does: divides, waits for topics, watches them."""

from __future__ import annotations

import pytest

from classic_harness import HEARTBEAT, Harness, metadata_of, partitions, picture
from multilane.client.group.classic import ClassicState
from multilane.client.group.classic.leading import GONE_WAIT, TOPIC_WAIT
from multilane.client.group.membership import Change
from multilane.errors import GroupError
from multilane.types import TopicPartition
from multilane.wire.compose_groups import read_assignment
from multilane.wire.messages import ApiKey

JOIN, SYNC, BEAT, LEAVE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
COOPERATIVE = "cooperative-sticky"


def lead(harness: Harness, members, generation: int = 1, protocol: str = "range") -> None:
    harness.answer(JOIN, generation_id=generation, leader="m1", member_id="m1", members=members, protocol_name=protocol)


def divided(harness: Harness):
    _, said = harness.sent(SYNC)
    return {a.member_id: frozenset(read_assignment(a.assignment)) for a in said.assignments}


def leading(topics=None, strategy="range") -> Harness:
    """A leader of two, at rest."""
    harness = Harness(strategy, topics=topics or {"t": 4})
    harness.subscribe()
    lead(harness, [("m1", metadata_of("t")), ("m2", metadata_of("t"))], protocol=strategy)
    mine = divided(harness)["m1"]
    harness.sync(mine)
    harness.done(Change.ASSIGNED, mine)
    harness.poll()
    return harness


def test_a_leader_divides_what_all_members_want():
    harness = Harness(topics={"t": 4, "u": 1})
    harness.subscribe()
    lead(harness, [("m1", metadata_of("t")), ("m2", metadata_of("t", "u"))])
    assert harness.member.is_leader
    assert harness.member.topics_to_watch == {"t", "u"}
    assert divided(harness) == {"m1": partitions("t", 0, 1), "m2": partitions("t", 2, 3) | partitions("u", 0)}


def test_the_group_chooses_the_assignor():
    harness = Harness("range", "roundrobin")
    harness.subscribe()
    lead(harness, [("m1", metadata_of("t")), ("m2", metadata_of("t"))], protocol="roundrobin")
    assert divided(harness) == {"m1": partitions("t", 0, 2), "m2": partitions("t", 1, 3)}


def test_what_a_member_has_is_not_given_to_another_before_it_is_free():
    harness = Harness(COOPERATIVE)
    harness.subscribe()
    all_of_it = partitions("t", 0, 1, 2, 3)
    members = [("m1", metadata_of("t", owned=all_of_it, generation=1)), ("m2", metadata_of("t"))]
    lead(harness, members, 2, COOPERATIVE)
    found = divided(harness)
    assert len(found["m1"]) == 2
    assert found["m2"] == frozenset()


def test_a_member_whose_bytes_are_broken_gets_nothing_and_the_others_go_on(caplog):
    harness = Harness()
    harness.subscribe()
    lead(harness, [("m1", metadata_of("t")), ("bad\n", b"\0\3garbage")])
    assert divided(harness) == {"m1": partitions("t", 0, 1, 2, 3), "bad\n": frozenset()}
    assert "member bad  gets no partitions" in caplog.text


def test_unknown_topics_are_waited_for():
    harness = Harness()
    harness.subscribe()
    lead(harness, [("m1", metadata_of("t")), ("m2", metadata_of("u"))])
    assert harness.none_sent(SYNC)
    assert harness.refreshes == 1
    assert harness.wait == pytest.approx(TOPIC_WAIT)
    harness.cluster = picture({"t": 1, "u": 2})
    assert divided(harness) == {"m1": partitions("t", 0), "m2": partitions("u", 0, 1)}


def test_topics_that_do_not_exist_are_waited_for_once(caplog):
    harness = Harness()
    harness.subscribe()
    members = [("m1", metadata_of("t")), ("m2", metadata_of("nowhere"))]
    lead(harness, members)
    assert harness.none_sent(SYNC, TOPIC_WAIT - 0.1)
    harness.now += 0.1
    assert divided(harness) == {"m1": partitions("t", 0, 1, 2, 3), "m2": frozenset()}
    assert "nowhere" in caplog.text
    harness.sync(partitions("t", 0, 1, 2, 3))
    harness.done(Change.ASSIGNED, partitions("t", 0, 1, 2, 3))
    harness.member.rejoin("test", harness.now)
    harness.poll()
    harness.done(Change.REVOKED, partitions("t", 0, 1, 2, 3))
    lead(harness, members, 2)
    divided(harness)  # at once


def test_heartbeats_go_on_while_a_leader_waits():
    harness = Harness()
    harness.subscribe()
    lead(harness, [("m1", metadata_of("t", "u"))])
    harness.poll(1.9)
    assert harness.state is ClassicState.SYNCING
    harness.member.fenced(GroupError("test"), harness.now)
    harness.sent(BEAT)


@pytest.mark.parametrize("topics", [{"t": 5}, {"t": 4, "new": 1}])
def test_more_partitions_call_for_a_rebalance(topics):
    harness = Harness()
    harness.subscribe("t", "new")
    lead(harness, [("m1", metadata_of("t", "new"))])
    harness.poll(TOPIC_WAIT)
    mine = divided(harness)["m1"]
    harness.sync(mine)
    harness.done(Change.ASSIGNED, mine)
    assert harness.none_sent(JOIN)
    harness.cluster = picture(topics)
    harness.poll()
    harness.done(Change.REVOKED, mine)
    _, said = harness.sent(JOIN)
    assert "has more partitions than before" in said.reason
    lead(harness, [("m1", metadata_of("t", "new"))], 2)
    harness.poll(TOPIC_WAIT)
    assert len(divided(harness)["m1"]) == 5


@pytest.mark.parametrize("topics", [{"t": 2}, {"x": 1}])
def test_fewer_partitions_call_for_a_rebalance_if_it_stays_so(topics):
    harness = leading()
    harness.cluster = picture(topics)
    harness.poll()
    assert harness.state is ClassicState.STABLE
    assert harness.wait <= GONE_WAIT
    harness.cluster = picture({"t": 4})
    harness.poll(1.0)
    harness.cluster = picture(topics)
    harness.poll(GONE_WAIT - 0.5)
    harness.poll(GONE_WAIT - 0.5)
    assert harness.state is ClassicState.STABLE
    harness.poll(0.5)
    assert harness.state is ClassicState.REVOKING


def test_a_picture_that_is_only_newer_calls_for_nothing():
    harness = leading()
    harness.cluster = picture({"t": 4, "other": 7})
    assert harness.none_sent(JOIN, 10.0)


def test_only_the_leader_watches():
    harness = Harness()
    harness.settle(partitions("t", 0))
    harness.cluster = picture({"t": 8})
    assert harness.none_sent(JOIN, 10.0)
    assert harness.state is ClassicState.STABLE
    assert harness.member.topics_to_watch == {"t"}


def test_who_led_before_does_not_watch_any_more():
    harness = leading(strategy=COOPERATIVE)
    harness.now += HEARTBEAT
    harness.answer(BEAT, error_code=27)
    harness.join(generation=2, leader="m2", protocol=COOPERATIVE)
    assert not harness.member.is_leader
    harness.sync(harness.member.owned)
    harness.done(Change.ASSIGNED, frozenset())
    harness.cluster = picture({"t": 8})
    assert harness.none_sent(JOIN)


class OwnAssignor:
    """The application's; it answers what it was made with."""

    name = "own"

    def __init__(self, answer, *, cooperative=False):
        self._answer = answer
        self.cooperative = cooperative

    def assign(self, members, topics):
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer

    def user_data(self, owned, generation):
        return b""


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (ZeroDivisionError("oops"), "ZeroDivisionError('oops')"),
        ({"m1": (TopicPartition("t", 0),), "m2": (TopicPartition("t", 0),)}, "assigned t-0 to two members"),
        ({"stranger": ()}, "which is not a member"),
        (None, "assignor own failed"),
        ({"m1": 7}, "assignor own failed"),
    ],
)
def test_an_assignor_that_fails_fails_its_member_alone(answer, text):
    harness = Harness(OwnAssignor(answer))
    harness.subscribe()
    lead(harness, [("m1", metadata_of("t")), ("m2", metadata_of("t"))], protocol="own")
    harness.poll()
    (error,) = harness.errors
    assert isinstance(error, GroupError)
    assert text in str(error)
    assert harness.state is ClassicState.FAILED
    harness.sent(LEAVE)


def test_an_assignor_whose_words_are_no_bytes_fails_its_member_alone():
    own = OwnAssignor({})
    own.user_data = lambda owned, generation: "text"
    harness = Harness(own)
    harness.subscribe()
    harness.poll()
    assert "assignor own failed" in str(harness.errors[0])
    assert harness.state is ClassicState.FAILED


def test_members_that_an_assignor_leaves_out_get_nothing():
    harness = Harness(OwnAssignor({"m2": (TopicPartition("t", 0),)}))
    harness.subscribe()
    lead(harness, [("m1", metadata_of("t")), ("m2", metadata_of("t"))], protocol="own")
    assert divided(harness) == {"m1": frozenset(), "m2": partitions("t", 0)}


def test_an_own_cooperative_assignor_cannot_take_from_one_and_give_to_another():
    moved = {"m1": (TopicPartition("t", 1),), "m2": (TopicPartition("t", 0), TopicPartition("t", 2))}
    harness = Harness(OwnAssignor(moved, cooperative=True))
    harness.subscribe()
    members = [("m1", metadata_of("t", owned=partitions("t", 0, 1), generation=1)), ("m2", metadata_of("t"))]
    lead(harness, members, 2, "own")
    assert divided(harness) == {"m1": partitions("t", 1), "m2": partitions("t", 2)}
