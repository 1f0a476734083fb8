"""Our assignors and Kafka's Java ones, given the same groups: every member gets the same partitions.

Left out are three kinds of groups that the Java sticky assignors do not manage; each has an example here. Java then
fails, or gives partitions to members that do not subscribe to them; ours must be sound all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from assignor_cases import Group, generation_of, groups, unsound
from broker.java_assignors import JavaAssignors, JavaFailed, java_assignors
from multilane.client.group.assignors import AssignorMember, GroupAssignment, TopicShape, find_assignor
from multilane.client.group.assignors.hash_order import first_in_hash_order, in_hash_order, partition_hash, string_hash
from multilane.client.group.assignors.user_data import read_ownership, write_ownership
from multilane.types import TopicPartition

pytestmark = pytest.mark.broker

STICKY = ("sticky", "cooperative-sticky")
NAMES = ("range", "roundrobin", *STICKY)
CASES = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(scope="module")
def java() -> Iterator[JavaAssignors]:
    with java_assignors() as started:
        yield started


def as_sets(assigned: GroupAssignment) -> dict[str, list[TopicPartition]]:
    return {member: sorted(partitions) for member, partitions in assigned.items()}


def check_equal(java: JavaAssignors, group: Group, names: Sequence[str]) -> None:
    cluster = java.cluster(group.topics)
    for name in names:
        assignor = find_assignor(name)
        members = group.for_assignor(assignor)
        ours = as_sets(assignor.assign(members, group.topics))
        assert ours == as_sets(java.assign(assignor, members, cluster)), name


def idle_first(group: Group) -> bool:
    """Java takes a group for one of equal subscriptions if those who subscribe to nothing come first."""
    return not in_hash_order(group.members)[0].topics


def unsubscribed_since(group: Group) -> bool:
    """Java moves a partition back to whoever had it in an earlier generation without asking if it is still wanted."""
    newest = max(generation_of(member) for member in group.members)
    return len({frozenset(member.topics) for member in group.members}) > 1 and any(
        partition.topic in group.topics and partition.topic not in member.topics
        for member in group.members
        if generation_of(member) < newest
        for partition in member.owned
    )


@given(group=groups(beyond=False, even=True))
@CASES
def test_equal_subscriptions(java, group):
    check_equal(java, group, NAMES)


@given(group=groups(beyond=False, even=False))
@settings(CASES, max_examples=400)
def test_different_subscriptions(java, group):
    assume(not idle_first(group) and not unsubscribed_since(group))
    check_equal(java, group, NAMES)


def test_a_partition_goes_back_although_that_evens_nothing(java):
    """It comes from a third member, which has no more than the one that gets it: Java does not ask."""

    def member(name, topics, owned="", generation=9):
        places = (place.rpartition("-") for place in owned.split())
        mine = tuple(TopicPartition(topic, int(number)) for topic, _, number in places)
        return AssignorMember(name, tuple(topics.split()), mine, generation)

    group = Group(
        (
            member("m3", "a b c", "a-1 a-4 a-0 c-1 b-0"),
            member("m0", "c b d a e", "b-3 b-4 b-1 a-3 a-7 a-6 d-1", -1),
            member("m2", "b d c", "c-2 c-0 b-2 d-0"),
            member("m1", "a b c", "", -1),
            member("m4", "b d c"),
            member("m5", "b d c", "", -1),
        ),
        {name: TopicShape(many) for name, many in {"d": 2, "c": 3, "a": 8, "b": 5, "e": 2}.items()},
    )
    check_equal(java, group, STICKY)


@given(group=groups(beyond=False, most=60))
@settings(CASES, max_examples=40)
def test_many_members(java, group):
    """Java's tables have grown here, and list the members in another order."""
    assume(not idle_first(group) and not unsubscribed_since(group))
    check_equal(java, group, STICKY)


@given(group=groups(beyond=False, even=False))
@settings(CASES, max_examples=100)
def test_whatever_java_makes_of_it_range_and_roundrobin_are_equal(java, group):
    check_equal(java, group, ("range", "roundrobin"))


@given(group=groups(beyond=False), rounds=st.integers(2, 4), dice=st.randoms(use_true_random=True))
@settings(CASES, max_examples=60)
def test_equal_through_a_row_of_rebalances(java, group, rounds, dice):
    """Members go and change their minds; everyone else comes with what it was last given."""
    for name in STICKY:
        assignor = find_assignor(name)
        now = group.without_history()
        for generation in range(rounds):
            if not now.members or idle_first(now):
                break
            check_equal(java, now, (name,))
            assigned = assignor.assign(now.for_assignor(assignor), now.topics)
            now = now.keeping(assigned, generation).shaken(dice)


def held(member: str, topics: str, owned: str) -> AssignorMember:
    """`t0 u3` are partition 0 of t and 3 of u."""
    partitions = tuple(TopicPartition(word[0], int(word[1:])) for word in owned.split())
    return AssignorMember(member, tuple(topics), partitions, generation=1)


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(
            Group(
                (
                    held("a", "t", "t2"),
                    held("b", "u", "u0 u2 u5"),
                    held("c", "tu", "t0 t1 u1 u3 u4"),
                    held("d", "t", ""),
                ),
                {"t": TopicShape(3), "u": TopicShape(6)},
            ),
            id="one goes back instead of another",
        ),
        pytest.param(
            Group(
                (
                    held("a", "tu", "t1 t2 t3 t4 t5 u0 u1 u2"),
                    held("b", "u", ""),
                    held("c", "u", ""),
                    held("d", "tu", "t0"),
                ),
                {"t": TopicShape(6), "u": TopicShape(3)},
            ),
            id="which of several goes back",
        ),
    ],
)
def test_moves_that_chance_seldom_makes(java, group):
    check_equal(java, group, STICKY)


OLD = TopicPartition("t", 0)


@pytest.mark.parametrize("name", STICKY)
@pytest.mark.parametrize(
    "group",
    [
        pytest.param(
            Group((AssignorMember("0", ()), AssignorMember("00", ("t",))), {"t": TopicShape(1)}),
            id="who subscribes to nothing comes first",
        ),
        pytest.param(
            Group(
                (
                    AssignorMember("a", ("u",), (OLD,), generation=1),
                    AssignorMember(
                        "b", ("t",), tuple(TopicPartition("t", number) for number in range(9)), generation=2
                    ),
                    AssignorMember("c", ("t", "u"), generation=2),
                ),
                {"t": TopicShape(9), "u": TopicShape(1)},
            ),
            id="a former owner has unsubscribed",
        ),
        pytest.param(
            Group(
                (
                    AssignorMember("a", ("t",), (OLD, TopicPartition("t", 7)), generation=1),
                    AssignorMember("b", ("t",), (TopicPartition("t", 1),), generation=1),
                ),
                {"t": TopicShape(5)},
            ),
            id="a partition is gone",
        ),
    ],
)
def test_what_java_does_not_manage(java, name, group):
    assignor = find_assignor(name)
    members = group.for_assignor(assignor)
    # The cooperative one gives partitions to nobody for a while; that is no fault.
    faults = {fault for fault in unsound(assignor.assign(members, group.topics), group) if "nobody" not in fault}
    assert not faults
    try:
        theirs = java.assign(assignor, members, java.cluster(group.topics))
    except JavaFailed:
        return
    assert {fault for fault in unsound(theirs, group) if "nobody" not in fault}


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=20), number=st.integers(0, 2**31 - 1))
@settings(CASES, max_examples=100)
def test_hashes(java, text, number):
    def unsigned(value: int) -> int:
        return value & 0xFFFFFFFF

    assert string_hash(text) == unsigned(java.jvm.java.util.Objects.hashCode(text))
    theirs = getattr(java.jvm, "org.apache.kafka.common").TopicPartition(text, number)
    assert partition_hash(TopicPartition(text, number)) == unsigned(theirs.hashCode())


@pytest.mark.parametrize("count", [1, 12, 13, 48, 200])
def test_order_of_hash_tables(java, count):
    ids = [f"consumer-{number * 7919}" for number in range(count)]
    table = java.jvm.java.util.HashMap()
    for member in ids:
        table.put(member, 0)
    assert [member.member_id for member in in_hash_order([AssignorMember(m, ()) for m in ids])] == list(table.keySet())


def test_the_first_of_a_set_that_has_shrunk(java):
    partitions = [TopicPartition("topic", number * 7) for number in range(60)]
    table = java.jvm.java.util.HashSet()
    theirs = [getattr(java.jvm, "org.apache.kafka.common").TopicPartition(*partition) for partition in partitions]
    for partition in theirs:
        table.add(partition)
    for gone in range(59):
        first = table.iterator().next()
        ours = first_in_hash_order(partitions[gone:], peak=60)
        assert (first.topic(), first.partition()) == ours
        table.remove(theirs[gone])


def test_java_members_tell_us_what_they_had(java):
    owned = (TopicPartition("t", 3), TopicPartition("t", 0), TopicPartition("t", 1))
    assert java.sticky_user_data(owned, 7) == write_ownership(owned, 7)
    owned += (TopicPartition("u", 5),)
    told = read_ownership(java.sticky_user_data(owned, 7))
    assert (sorted(told.partitions), told.generation) == (sorted(owned), 7)


DAMAGE = st.lists(st.tuples(st.integers(0, 40), st.binary(min_size=1, max_size=2)), max_size=3)


@given(cut=st.integers(0, 60), damage=DAMAGE, tail=st.binary(max_size=6))
@settings(CASES, max_examples=200)
def test_damaged_user_data_is_read_as_java_reads_it(java, cut, damage, tail):
    whole = bytearray(write_ownership([TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("topic", 0)], 5))
    for place, new in damage:
        whole[place : place + len(new)] = new
    data = bytes(whole[:cut]) + tail
    assert read_ownership(data) == java.read_sticky(data)
