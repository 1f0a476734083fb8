"""Assignors by example: ranges, turns, racks, who keeps what, and what travels in user data."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from multilane.client.group.assignors import (
    AssignorMember,
    GroupAssignment,
    TopicShape,
    TopicShapes,
    all_cooperative,
    find_assignor,
)
from multilane.client.group.assignors.claims import Ownership, resolve
from multilane.client.group.assignors.movements import Movements
from multilane.client.group.assignors.user_data import read_generation, read_ownership, write_ownership
from multilane.errors import ConfigError
from multilane.types import TopicPartition

RANGE = find_assignor("range")
ROUND_ROBIN = find_assignor("roundrobin")
STICKY = find_assignor("sticky")
COOPERATIVE = find_assignor("cooperative-sticky")


def parts(text: str) -> tuple[TopicPartition, ...]:
    """`t0 u3` are partition 0 of t and 3 of u."""
    return tuple(TopicPartition(word[0], int(word[1:])) for word in text.split())


def short(assigned: GroupAssignment) -> dict[str, str]:
    return {member: " ".join(f"{p.topic}{p.partition}" for p in sorted(given)) for member, given in assigned.items()}


def owning(member: str, topics: str, owned: str, generation: int = 1) -> AssignorMember:
    """A member that any of the sticky assignors understands."""
    has = parts(owned)
    return AssignorMember(member, tuple(topics), has, generation, user_data=STICKY.user_data(has, generation))


def test_ranges_are_cut_topic_by_topic():
    members = [AssignorMember("b", ("t", "u")), AssignorMember("a", ("t", "u"))]
    assert short(RANGE.assign(members, {"t": TopicShape(3), "u": TopicShape(3)})) == {"a": "t0 t1 u0 u1", "b": "t2 u2"}


def test_static_members_come_first_by_the_name_that_lasts():
    static = [AssignorMember("z", ("t",), instance_id="2"), AssignorMember("y", ("t",), instance_id="3")]
    members = [AssignorMember("a", ("t",)), *static]
    for assignor in (RANGE, ROUND_ROBIN):
        assert short(assignor.assign(members, {"t": TopicShape(2)})) == {"a": "", "z": "t0", "y": "t1"}


def test_round_robin_deals_all_topics_in_a_row():
    members = [AssignorMember("a", ("t", "u")), AssignorMember("b", ("t", "u"))]
    assigned = ROUND_ROBIN.assign(members, {"t": TopicShape(3), "u": TopicShape(3)})
    assert short(assigned) == {"a": "t0 t2 u1", "b": "t1 u0 u2"}


def test_round_robin_passes_over_who_does_not_subscribe():
    members = [AssignorMember("a", ("t",)), AssignorMember("b", ("t", "u")), AssignorMember("c", ("u",))]
    assigned = ROUND_ROBIN.assign(members, {"t": TopicShape(3), "u": TopicShape(2)})
    assert short(assigned) == {"a": "t0 t2", "b": "t1 u0", "c": "u1"}


def racks(*each: str) -> TopicShape:
    return TopicShape(len(each), tuple(frozenset(names) for names in each))


@pytest.mark.parametrize("assignor", [RANGE, STICKY, COOPERATIVE], ids=lambda assignor: assignor.name)
def test_partitions_go_to_the_rack_of_a_replica(assignor):
    members = [AssignorMember("a", ("t",), rack="x"), AssignorMember("b", ("t",), rack="y")]
    assert short(assignor.assign(members, {"t": racks("y", "x", "y", "x")})) == {"a": "t1 t3", "b": "t0 t2"}


@pytest.mark.parametrize("assignor", [RANGE, STICKY, COOPERATIVE], ids=lambda assignor: assignor.name)
def test_even_loads_come_before_racks(assignor):
    members = [AssignorMember("a", ("t",), rack="x"), AssignorMember("b", ("t",), rack="y")]
    loads = [len(given) for given in assignor.assign(members, {"t": racks("x", "x", "x", "x")}).values()]
    assert loads == [2, 2]


def test_topics_with_the_same_readers_and_size_are_matched_together():
    members = [AssignorMember("a", ("t", "u"), rack="x"), AssignorMember("b", ("t", "u"), rack="y")]
    assigned = RANGE.assign(members, {"t": racks("y", "x"), "u": racks("y", "xy")})
    assert short(assigned) == {"a": "t1 u1", "b": "t0 u0"}


def test_a_rack_that_nobody_has_changes_nothing():
    topics = {"t": racks("y", "x", "z")}
    plain = [AssignorMember("a", ("t",)), AssignorMember("b", ("t",))]
    elsewhere = [AssignorMember("a", ("t",), rack="moon"), AssignorMember("b", ("t",), rack="")]
    for assignor in (RANGE, STICKY):
        assert assignor.assign(elsewhere, topics) == assignor.assign(plain, topics)


TWO: TopicShapes = {"t": TopicShape(6)}


def test_a_new_member_gets_only_what_the_others_have_too_much_of():
    members = [owning("a", "t", "t0 t2 t4"), owning("b", "t", "t1 t3 t5"), AssignorMember("c", ("t",))]
    assert short(STICKY.assign(members, TWO)) == {"a": "t0 t2", "b": "t1 t3", "c": "t4 t5"}


def test_cooperative_members_give_up_before_others_get():
    members = [owning("a", "t", "t0 t2 t4"), owning("b", "t", "t1 t3 t5"), AssignorMember("c", ("t",))]
    assert short(COOPERATIVE.assign(members, TWO)) == {"a": "t0 t2", "b": "t1 t3", "c": ""}
    members = [owning("a", "t", "t0 t2", 2), owning("b", "t", "t1 t3", 2), owning("c", "t", "", 2)]
    assert short(COOPERATIVE.assign(members, TWO)) == {"a": "t0 t2", "b": "t1 t3", "c": "t4 t5"}


def test_the_same_with_different_subscriptions():
    topics = {"t": TopicShape(6), "u": TopicShape(1)}
    members = [owning("a", "tu", "t0 t2 t4 u0"), owning("b", "t", "t1 t3 t5"), AssignorMember("c", ("t",))]
    assert short(STICKY.assign(members, topics)) == {"a": "t2 t4 u0", "b": "t3 t5", "c": "t0 t1"}
    assert short(COOPERATIVE.assign(members, topics)) == {"a": "t2 t4 u0", "b": "t3 t5", "c": ""}


def test_who_left_a_topic_loses_it_and_others_get_it_a_round_later():
    topics = {"t": TopicShape(2), "u": TopicShape(2)}
    members = [owning("a", "u", "t0 u0"), owning("b", "tu", "t1 u1")]
    assert short(STICKY.assign(members, topics)) == {"a": "u0 u1", "b": "t0 t1"}
    assert short(COOPERATIVE.assign(members, topics)) == {"a": "u0", "b": "t1"}


def settled(*members: AssignorMember, topics: TopicShapes = TWO):
    return resolve(members, lambda member: Ownership(member.owned, member.generation), topics)


@pytest.mark.parametrize("order", [1, -1])
def test_the_later_generation_is_right(order):
    claims = settled(*[owning("a", "t", "t0", 1), owning("b", "t", "t0", 2)][::order])
    assert claims.owner == {parts("t0")[0]: "b"}
    assert claims.former == {parts("t0")[0]: "a"}
    assert not claims.disputed


def test_of_two_in_one_generation_neither_is_believed():
    claims = settled(owning("a", "t", "t0 t1"), owning("b", "t", "t0"))
    assert claims.disputed == set(parts("t0"))
    assert {member: tuple(owned) for member, owned in claims.owned.items()} == {"a": parts("t1"), "b": ()}


def test_claims_to_what_does_not_exist_are_none():
    claims = settled(owning("a", "t", "t6 x0 t5"), AssignorMember("b", ("t",), (TopicPartition("t", -1),)))
    assert claims.owner == {parts("t5")[0]: "a"}


def test_a_partition_goes_back_instead_of_another_coming_after_it():
    first, second = parts("t1 t2")
    movements = Movements()
    movements.record(first, "a", "b")
    assert movements.instead_of(second, "b", "a") == first
    assert movements.instead_of(second, "c", "a") == second
    assert movements.instead_of(parts("u0")[0], "b", "a") == parts("u0")[0]
    movements.record(first, "b", "a")
    assert movements.instead_of(second, "b", "a") == second


def test_a_way_of_two_moves_counts_as_one():
    first, second = parts("t1 t2")
    movements = Movements()
    movements.record(first, "a", "b")
    movements.record(first, "b", "c")
    assert movements.instead_of(second, "c", "a") == first
    assert movements.instead_of(second, "b", "a") == second


def test_sticky_user_data():
    data = STICKY.user_data(parts("t3 u1 t0"), 9)
    topics = "00000002  0001 74 00000002 00000003 00000000  0001 75 00000001 00000001"
    assert data == bytes.fromhex(topics + "00000009")
    assert read_ownership(data) == Ownership(parts("t3 t0 u1"), 9)
    assert STICKY.user_data((), -1) == b""
    assert read_ownership(STICKY.user_data((), 4)) == Ownership((), 4)


def test_sticky_user_data_of_old_members_has_no_generation():
    assert read_ownership(write_ownership(parts("t0 t1"), 5)[:-4]) == Ownership(parts("t0 t1"), -1)


def test_cooperative_user_data_is_the_generation():
    assert COOPERATIVE.user_data(parts("t0"), 258) == bytes([0, 0, 1, 2])
    assert read_generation(bytes([0, 0, 1, 2])) == 258
    assert read_generation(b"\0\0\1") == -1
    assert RANGE.user_data(parts("t0"), 1) == ROUND_ROBIN.user_data(parts("t0"), 1) == b""


def test_a_cooperative_member_of_an_old_version_says_its_generation_in_user_data():
    old = AssignorMember("a", ("t",), parts("t0"), user_data=COOPERATIVE.user_data((), 1))
    new = AssignorMember("b", ("t",), parts("t0 t1"), generation=2)
    assert short(COOPERATIVE.assign([old, new], {"t": TopicShape(2)})) == {"a": "", "b": "t0"}


@pytest.mark.parametrize(
    "data",
    [
        b"\x7f\xff\xff\xff",
        b"\x80\0\0\0",
        b"\0\0\0\1\x7f\xfft",
        b"\0\0\0\1\xff\xfft",
        b"\0\0\0\1\0\1t\x7f\xff\xff\xff",
        b"\0\0\0\1\0\1t\xff\xff\xff\xff",
        b"\0\0\0\1\0\1t\0\0\0\1\0\0",
    ],
)
def test_damaged_user_data_says_nothing(data):
    assert read_ownership(data) == Ownership()


def test_nobody_and_nothing():
    for assignor in (RANGE, ROUND_ROBIN, STICKY, COOPERATIVE):
        assert assignor.assign([], {"t": TopicShape(3)}) == {}
        assert assignor.assign([AssignorMember("a", ("t",))], {}) == {"a": ()}
        assert assignor.assign([AssignorMember("a", ())], {"t": TopicShape(3)}) == {"a": ()}


class FirstTakesAll:
    """An assignor of an application's own."""

    name = "first-takes-all"
    cooperative = False

    def assign(self, members: Sequence[AssignorMember], topics: TopicShapes) -> GroupAssignment:
        everything = tuple(TopicPartition(t, n) for t, shape in topics.items() for n in range(shape.partitions))
        first = min(member.member_id for member in members)
        return {member.member_id: everything if member.member_id == first else () for member in members}

    def user_data(self, owned: Sequence[TopicPartition], generation: int) -> bytes:
        del owned, generation
        return b""


def test_assignors_are_found_by_either_name():
    for ours, java in {
        "range": "RangeAssignor",
        "roundrobin": "RoundRobinAssignor",
        "sticky": "StickyAssignor",
        "cooperative-sticky": "CooperativeStickyAssignor",
    }.items():
        found = find_assignor(f"org.apache.kafka.clients.consumer.{java}")
        assert found is find_assignor(ours)
        assert found.name == ours


def test_an_own_assignor_is_taken_as_it_is():
    own = FirstTakesAll()
    assert find_assignor(own) is own
    assert not all_cooperative([COOPERATIVE, own])
    assert all_cooperative([COOPERATIVE])


def test_what_is_no_assignor_is_refused():
    with pytest.raises(ConfigError, match="'rnage' is unknown; write one of range, roundrobin"):
        find_assignor("rnage")
    with pytest.raises(ConfigError, match="object is not an assignor, it lacks name, cooperative, assign, user_data"):
        find_assignor(object())
    unnamed = FirstTakesAll()
    unnamed.name = ""
    with pytest.raises(ConfigError, match="lacks a name"):
        find_assignor(unnamed)
