"""What the leader of a classic group does: divides, waits for topics, watches them."""

from __future__ import annotations

import pytest

from classic_desk import HEARTBEAT, Desk, metadata_of, partitions, picture
from multilane.client.group.classic import ClassicState
from multilane.client.group.classic.leading import GONE_WAIT, TOPIC_WAIT
from multilane.client.group.membership import Change
from multilane.errors import GroupError
from multilane.types import TopicPartition
from multilane.wire.compose_groups import read_assignment
from multilane.wire.messages import ApiKey

JOIN, SYNC, BEAT, LEAVE = ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP
COOPERATIVE = "cooperative-sticky"


def lead(desk: Desk, members, generation: int = 1, protocol: str = "range") -> None:
    desk.answer(JOIN, generation_id=generation, leader="m1", member_id="m1", members=members, protocol_name=protocol)


def divided(desk: Desk):
    _, said = desk.sent(SYNC)
    return {a.member_id: frozenset(read_assignment(a.assignment)) for a in said.assignments}


def leading(topics=None, strategy="range") -> Desk:
    """A leader of two, at rest."""
    desk = Desk(strategy, topics=topics or {"t": 4})
    desk.subscribe()
    lead(desk, [("m1", metadata_of("t")), ("m2", metadata_of("t"))], protocol=strategy)
    mine = divided(desk)["m1"]
    desk.sync(mine)
    desk.done(Change.ASSIGNED, mine)
    desk.poll()
    return desk


def test_a_leader_divides_what_all_members_want():
    desk = Desk(topics={"t": 4, "u": 1})
    desk.subscribe()
    lead(desk, [("m1", metadata_of("t")), ("m2", metadata_of("t", "u"))])
    assert desk.member.is_leader
    assert desk.member.topics_to_watch == {"t", "u"}
    assert divided(desk) == {"m1": partitions("t", 0, 1), "m2": partitions("t", 2, 3) | partitions("u", 0)}


def test_the_group_chooses_the_assignor():
    desk = Desk("range", "roundrobin")
    desk.subscribe()
    lead(desk, [("m1", metadata_of("t")), ("m2", metadata_of("t"))], protocol="roundrobin")
    assert divided(desk) == {"m1": partitions("t", 0, 2), "m2": partitions("t", 1, 3)}


def test_what_a_member_has_is_not_given_to_another_before_it_is_free():
    desk = Desk(COOPERATIVE)
    desk.subscribe()
    all_of_it = partitions("t", 0, 1, 2, 3)
    members = [("m1", metadata_of("t", owned=all_of_it, generation=1)), ("m2", metadata_of("t"))]
    lead(desk, members, 2, COOPERATIVE)
    found = divided(desk)
    assert len(found["m1"]) == 2
    assert found["m2"] == frozenset()


def test_a_member_whose_bytes_are_broken_gets_nothing_and_the_others_go_on(caplog):
    desk = Desk()
    desk.subscribe()
    lead(desk, [("m1", metadata_of("t")), ("bad\n", b"\0\3garbage")])
    assert divided(desk) == {"m1": partitions("t", 0, 1, 2, 3), "bad\n": frozenset()}
    assert "member bad  gets no partitions" in caplog.text


def test_unknown_topics_are_waited_for():
    desk = Desk()
    desk.subscribe()
    lead(desk, [("m1", metadata_of("t")), ("m2", metadata_of("u"))])
    assert desk.none_sent(SYNC)
    assert desk.refreshes == 1
    assert desk.wait == pytest.approx(TOPIC_WAIT)
    desk.cluster = picture({"t": 1, "u": 2})
    assert divided(desk) == {"m1": partitions("t", 0), "m2": partitions("u", 0, 1)}


def test_topics_that_do_not_exist_are_waited_for_once(caplog):
    desk = Desk()
    desk.subscribe()
    members = [("m1", metadata_of("t")), ("m2", metadata_of("nowhere"))]
    lead(desk, members)
    assert desk.none_sent(SYNC, TOPIC_WAIT - 0.1)
    desk.now += 0.1
    assert divided(desk) == {"m1": partitions("t", 0, 1, 2, 3), "m2": frozenset()}
    assert "nowhere" in caplog.text
    desk.sync(partitions("t", 0, 1, 2, 3))
    desk.done(Change.ASSIGNED, partitions("t", 0, 1, 2, 3))
    desk.member.rejoin("test", desk.now)
    desk.poll()
    desk.done(Change.REVOKED, partitions("t", 0, 1, 2, 3))
    lead(desk, members, 2)
    divided(desk)  # at once


def test_heartbeats_go_on_while_a_leader_waits():
    desk = Desk()
    desk.subscribe()
    lead(desk, [("m1", metadata_of("t", "u"))])
    desk.poll(1.9)
    assert desk.state is ClassicState.SYNCING
    desk.member.fenced(GroupError("test"), desk.now)
    desk.sent(BEAT)


@pytest.mark.parametrize("topics", [{"t": 5}, {"t": 4, "new": 1}])
def test_more_partitions_call_for_a_rebalance(topics):
    desk = Desk()
    desk.subscribe("t", "new")
    lead(desk, [("m1", metadata_of("t", "new"))])
    desk.poll(TOPIC_WAIT)
    mine = divided(desk)["m1"]
    desk.sync(mine)
    desk.done(Change.ASSIGNED, mine)
    assert desk.none_sent(JOIN)
    desk.cluster = picture(topics)
    desk.poll()
    desk.done(Change.REVOKED, mine)
    _, said = desk.sent(JOIN)
    assert "has more partitions than before" in said.reason
    lead(desk, [("m1", metadata_of("t", "new"))], 2)
    desk.poll(TOPIC_WAIT)
    assert len(divided(desk)["m1"]) == 5


@pytest.mark.parametrize("topics", [{"t": 2}, {"x": 1}])
def test_fewer_partitions_call_for_a_rebalance_if_it_stays_so(topics):
    desk = leading()
    desk.cluster = picture(topics)
    desk.poll()
    assert desk.state is ClassicState.STABLE
    assert desk.wait <= GONE_WAIT
    desk.cluster = picture({"t": 4})
    desk.poll(1.0)
    desk.cluster = picture(topics)
    desk.poll(GONE_WAIT - 0.5)
    desk.poll(GONE_WAIT - 0.5)
    assert desk.state is ClassicState.STABLE
    desk.poll(0.5)
    assert desk.state is ClassicState.REVOKING


def test_a_picture_that_is_only_newer_calls_for_nothing():
    desk = leading()
    desk.cluster = picture({"t": 4, "other": 7})
    assert desk.none_sent(JOIN, 10.0)


def test_only_the_leader_watches():
    desk = Desk()
    desk.settle(partitions("t", 0))
    desk.cluster = picture({"t": 8})
    assert desk.none_sent(JOIN, 10.0)
    assert desk.state is ClassicState.STABLE
    assert desk.member.topics_to_watch == {"t"}


def test_who_led_before_does_not_watch_any_more():
    desk = leading(strategy=COOPERATIVE)
    desk.now += HEARTBEAT
    desk.answer(BEAT, error_code=27)
    desk.join(generation=2, leader="m2", protocol=COOPERATIVE)
    assert not desk.member.is_leader
    desk.sync(desk.member.owned)
    desk.done(Change.ASSIGNED, frozenset())
    desk.cluster = picture({"t": 8})
    assert desk.none_sent(JOIN)


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
    desk = Desk(OwnAssignor(answer))
    desk.subscribe()
    lead(desk, [("m1", metadata_of("t")), ("m2", metadata_of("t"))], protocol="own")
    desk.poll()
    (error,) = desk.errors
    assert isinstance(error, GroupError)
    assert text in str(error)
    assert desk.state is ClassicState.FAILED
    desk.sent(LEAVE)


def test_an_assignor_whose_words_are_no_bytes_fails_its_member_alone():
    own = OwnAssignor({})
    own.user_data = lambda owned, generation: "text"
    desk = Desk(own)
    desk.subscribe()
    desk.poll()
    assert "assignor own failed" in str(desk.errors[0])
    assert desk.state is ClassicState.FAILED


def test_members_that_an_assignor_leaves_out_get_nothing():
    desk = Desk(OwnAssignor({"m2": (TopicPartition("t", 0),)}))
    desk.subscribe()
    lead(desk, [("m1", metadata_of("t")), ("m2", metadata_of("t"))], protocol="own")
    assert divided(desk) == {"m1": frozenset(), "m2": partitions("t", 0)}


def test_an_own_cooperative_assignor_cannot_take_from_one_and_give_to_another():
    moved = {"m1": (TopicPartition("t", 1),), "m2": (TopicPartition("t", 0), TopicPartition("t", 2))}
    desk = Desk(OwnAssignor(moved, cooperative=True))
    desk.subscribe()
    members = [("m1", metadata_of("t", owned=partitions("t", 0, 1), generation=1)), ("m2", metadata_of("t"))]
    lead(desk, members, 2, "own")
    assert divided(desk) == {"m1": partitions("t", 1), "m2": partitions("t", 2)}
