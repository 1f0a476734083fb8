"""What every assignor promises, whatever group it is given."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from assignor_cases import Group, everything, groups, unsound
from multilane.client.group.assignors import Assignor, AssignorMember, GroupAssignment, TopicShape, find_assignor
from multilane.client.group.assignors.user_data import read_generation, read_ownership, write_ownership
from multilane.types import TopicPartition

EAGER = [find_assignor(name) for name in ("range", "roundrobin", "sticky")]
STICKY = find_assignor("sticky")
COOPERATIVE = find_assignor("cooperative-sticky")
ALL = [*EAGER, COOPERATIVE]
CASES = settings(max_examples=150, deadline=None)


def named(assignor: Assignor) -> str:
    return assignor.name


def assign(assignor: Assignor, group: Group) -> GroupAssignment:
    return assignor.assign(group.for_assignor(assignor), group.topics)


def without_racks(group: Group) -> Group:
    return replace(group, members=tuple(replace(member, rack=None) for member in group.members))


def settled(assignor: Assignor, group: Group) -> tuple[GroupAssignment, Group]:
    """What a group comes to: a cooperative one rebalances until nobody has to give up anything.

    That is after two rounds, or three if someone has missed some. Racks take longer: what is in nobody's rack changes
    hands in each round.
    """
    rounds = 40 if any(member.rack for member in group.members) else 3
    for generation in range(10, 10 + rounds):
        assigned = assign(assignor, group)
        after = group.keeping(assigned, generation)
        if not assignor.cooperative or not any(set(m.owned) - set(assigned[m.member_id]) for m in group.members):
            return assigned, after
        group = after
    raise AssertionError(f"still revoking after {rounds} rounds")


@pytest.mark.parametrize("assignor", ALL, ids=named)
@given(group=groups())
@CASES
def test_everything_wanted_is_given_once_to_one_who_wants_it(assignor, group):
    assigned, _ = settled(assignor, group)
    assert not unsound(assigned, group)


TOPIC_OF_TRIGGERS = ("orders", "clicks", "a.b", "users")


@pytest.mark.parametrize("assignor", ALL, ids=named)
@given(
    apps=st.lists(st.sets(st.sampled_from(TOPIC_OF_TRIGGERS), min_size=1), min_size=1, max_size=5),
    union=st.lists(st.sets(st.sampled_from(TOPIC_OF_TRIGGERS), min_size=1), max_size=3),
    counts=st.lists(st.integers(1, 7), min_size=4, max_size=4),
)
@CASES
def test_a_member_for_each_topic_starves_no_trigger(assignor, apps, union, counts):
    """As `same-topic` makes them: each app has a member for each of its topics. Others read several topics at once."""
    topics = {name: TopicShape(count) for name, count in zip(TOPIC_OF_TRIGGERS, counts, strict=True)}
    members = [AssignorMember(f"app-{n}-{name}", (name,)) for n, names in enumerate(apps) for name in sorted(names)]
    members += [AssignorMember(f"other-{n}", tuple(sorted(names))) for n, names in enumerate(union)]
    group = Group(tuple(members), topics)
    assigned, after = settled(assignor, group)
    assert not unsound(assigned, group)
    again, _ = settled(assignor, replace(after, members=after.members[1:])) if len(members) > 1 else ({}, after)
    left = {topic for member in members[1:] for topic in member.topics}
    owned = {p for partitions in again.values() for p in partitions}
    assert owned == {p for p in everything(topics) if p.topic in left}


@given(group=groups())
@CASES
def test_no_two_have_a_partition_at_once(group):
    """Cooperative members keep what they have until they are told: nobody is given what another still has."""
    assigned = assign(COOPERATIVE, group)
    owners: dict[TopicPartition, set[str]] = {}
    for member in group.members:
        for partition in member.owned:
            owners.setdefault(partition, set()).add(member.member_id)
    for member, partitions in assigned.items():
        for partition in partitions:
            assert not (holders := owners.get(partition, set())) or member in holders


@pytest.mark.parametrize("assignor", [*EAGER[1:], COOPERATIVE], ids=named)
@given(group=groups(even=True))
@CASES
def test_equal_subscriptions_make_equal_loads(assignor, group):
    loads = [len(partitions) for partitions in settled(assignor, group)[0].values()]
    assert max(loads) - min(loads) <= 1


@given(group=groups())
@CASES
def test_range_is_even_in_each_topic(group):
    assigned = assign(EAGER[0], group)
    loads = Counter((p.topic, member) for member, partitions in assigned.items() for p in partitions)
    for topic in group.topics:
        readers = [loads[topic, m.member_id] for m in group.members if topic in m.topics]
        assert not readers or max(readers) - min(readers) <= 1


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=named)
@given(group=groups(even=False))
@CASES
def test_no_single_move_would_help(assignor, group):
    assigned, _ = settled(assignor, group)
    for partitions in assigned.values():
        for partition in partitions:
            others = [m.member_id for m in group.members if partition.topic in m.topics]
            assert all(len(partitions) <= len(assigned[other]) + 1 for other in others)


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=named)
@given(group=groups(beyond=False))
@CASES
def test_a_group_that_does_not_change_moves_nothing(assignor, group):
    assigned, after = settled(assignor, without_racks(group))
    again = assign(assignor, after)
    assert {m: sorted(p) for m, p in again.items()} == {m: sorted(p) for m, p in assigned.items()}


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=named)
@given(group=groups(even=True), which=st.integers(0, 11))
@CASES
def test_when_one_leaves_the_others_keep_all(assignor, group, which):
    assume(len(group.members) > 1)
    before, after = settled(assignor, without_racks(group))
    staying = tuple(m for place, m in enumerate(after.members) if place != which % len(after.members))
    now = assign(assignor, replace(after, members=staying))
    for member in staying:
        assert set(before[member.member_id]) <= set(now[member.member_id])


@pytest.mark.parametrize("assignor", EAGER[:2], ids=named)
@given(group=groups(), dice=st.randoms(use_true_random=True))
@CASES
def test_how_members_are_listed_does_not_matter(assignor, group, dice):
    shuffled = replace(group, members=tuple(dice.sample(group.members, len(group.members))))
    assert assign(assignor, shuffled) == assign(assignor, group)


@pytest.mark.parametrize("assignor", [STICKY, COOPERATIVE], ids=named)
@given(group=groups(), dice=st.randoms(use_true_random=True))
@CASES
def test_nor_for_sticky_ones_that_start_afresh(assignor, group, dice):
    """With a history it may: Java looks at members by bucket of a hash table, and in one bucket as they are listed."""
    fresh = group.without_history()
    shuffled = replace(fresh, members=tuple(dice.sample(fresh.members, len(fresh.members))))
    assert assign(assignor, shuffled) == assign(assignor, fresh)


@pytest.mark.parametrize("assignor", ALL, ids=named)
@given(group=groups(), data=st.lists(st.binary(max_size=40), min_size=12, max_size=12))
@CASES
def test_hostile_user_data_harms_nobody(assignor, group, data):
    members = tuple(replace(m, user_data=each, generation=-1) for m, each in zip(group.members, data, strict=False))
    faults = unsound(assignor.assign(members, group.topics), group)
    assert not [fault for fault in faults if not (assignor.cooperative and "nobody" in fault)]


@given(data=st.binary(max_size=60))
@settings(max_examples=500, deadline=None)
def test_any_bytes_can_be_read(data):
    read_ownership(data)
    read_generation(data)


PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "a-long-name.of_a_topic"]), st.integers(0, 2**31 - 1))


@given(owned=st.lists(PARTITIONS, unique=True, max_size=20), generation=st.integers(-1, 2**31 - 1))
def test_user_data_comes_back_as_it_was_written(owned, generation):
    ownership = read_ownership(write_ownership(owned, generation))
    assert (sorted(ownership.partitions), ownership.generation) == (sorted(owned), generation)


@pytest.mark.parametrize("assignor", ALL, ids=named)
def test_a_thousand_partitions_and_a_hundred_members(assignor, large_group):
    assigned, after = settled(assignor, large_group)
    assert not unsound(assigned, large_group)
    assert not unsound(settled(assignor, after)[0], after)


@pytest.fixture
def large_group() -> Group:
    topics = {f"topic-{number}": TopicShape(100) for number in range(10)}
    names = tuple(topics)
    members = tuple(AssignorMember(f"consumer-{number}", names[number % 7 :]) for number in range(100))
    assert len(everything(topics)) == 1_000
    return Group(members, topics)
