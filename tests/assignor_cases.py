"""Groups for the tests of assignors: members with a history, topics with and without racks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from hypothesis import strategies as st

from multilane.client.group.assignors import Assignor, AssignorMember, GroupAssignment, TopicShape
from multilane.client.group.assignors.user_data import read_generation, write_generation, write_ownership
from multilane.types import TopicPartition

TOPICS = ("orders", "Zeta", "a.b", "x-1", "clicks_2")
GONE = "gone"
RACKS = ("east", "west", "north")
LETTERS = "abAB019-_\u00e9\uffff\U00010000"


@dataclass(frozen=True, slots=True)
class Group:
    """Members as an assignor of this case sees them, in the order of a JoinGroup response."""

    members: tuple[AssignorMember, ...]
    topics: Mapping[str, TopicShape]

    def for_assignor(self, assignor: Assignor) -> tuple[AssignorMember, ...]:
        """The sticky assignor finds what members owned in their user data, the cooperative one in the subscription,
        but for the generation of a member that is too old to say it there."""
        if assignor.name != "sticky":
            return self.members
        return tuple(replace(m, user_data=write_ownership(m.owned, generation_of(m))) for m in self.members)

    def without_history(self) -> Group:
        return self.keeping({}, -1)

    def keeping(self, assigned: GroupAssignment, generation: int) -> Group:
        """The group after an assignment: everyone owns what it was given."""
        told = {m.member_id: _grouped(dict.fromkeys(assigned.get(m.member_id, ()))) for m in self.members}
        members = (
            replace(m, owned=told[m.member_id], generation=generation, user_data=write_generation(generation))
            for m in self.members
        )
        return replace(self, members=tuple(members))

    def shaken(self, dice: Random) -> Group:
        """Some members are gone, some want other topics of the group's."""
        wishes = [member.topics for member in self.members]
        members = (
            replace(member, topics=dice.choice(wishes)) if dice.random() < 0.2 else member
            for member in self.members
            if dice.random() < 0.8
        )
        return replace(self, members=tuple(members))


def generation_of(member: AssignorMember) -> int:
    """For the members of a Group: with the cooperative assignor's user data."""
    return read_generation(member.user_data) if member.generation < 0 else member.generation


def everything(topics: Mapping[str, TopicShape]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, shape in topics.items() for number in range(shape.partitions)]


@st.composite
def groups(draw, *, beyond: bool = True, even: bool | None = None, most: int = 12) -> Group:
    """Sizes and kinds are Hypothesis's to shrink, the rest is a dice's.

    `beyond`: members also claim partitions that their topics do not have (any more). `even`: all want the same topics.
    """
    count = draw(st.integers(1, most))
    names = TOPICS[: draw(st.integers(1, len(TOPICS)))]
    racks = draw(st.booleans())
    kind = draw(st.sampled_from(["none", "dealt", "lopsided", "claimed"]))
    even = draw(st.booleans()) if even is None else even
    dice = draw(st.randoms(use_true_random=True))
    topics = {name: _shape(dice, racks=racks) for name in names}
    there = everything(topics) + [TopicPartition(GONE, number) for number in range(2)]
    if beyond:
        there += [TopicPartition(topic, number) for topic in topics for number in (20, -1)]
    subscriptions = _subscriptions(dice, (*names, GONE), count, even=even)
    histories = _histories(dice, there, count, kind)
    newest = dice.randrange(10)
    ids = _ids(dice, count)
    each = zip(ids, subscriptions, histories, strict=True)
    return Group(tuple(_member(dice, who, newest, racks=racks) for who in each), topics)


def _ids(dice: Random, count: int) -> list[str]:
    """Some as brokers make them, some that sort differently in Java and here."""
    found: dict[str, None] = {}
    while len(found) < count:
        length = dice.randint(1, 6)
        found[dice.choice(["", "consumer-"]) + "".join(dice.choices(LETTERS, k=length))] = None
    return list(found)


def _shape(dice: Random, *, racks: bool) -> TopicShape:
    count = dice.randint(1, 9)
    if not racks:
        return TopicShape(count)
    return TopicShape(count, tuple(frozenset(dice.choices(RACKS, k=dice.randint(0, 3))) for _ in range(count)))


def _member(dice: Random, who: tuple, newest: int, *, racks: bool) -> AssignorMember:
    member_id, topics, owned = who
    generation = max(-1, newest - dice.choice([0, 0, 0, 0, 1, 1, 2, 20]))
    old = dice.random() < 0.2  # too old for a generation in the subscription
    return AssignorMember(
        member_id,
        topics,
        owned,
        generation=-1 if old else generation,
        instance_id=dice.choice([None, None, f"static-{member_id[::-1]}"]),
        rack=dice.choice([None, "", *RACKS, *RACKS]) if racks else None,
        user_data=write_generation(generation) if old and dice.random() < 0.8 else b"",
    )


def _subscriptions(dice: Random, names: Sequence[str], count: int, *, even: bool) -> list[tuple[str, ...]]:
    if even:
        return [tuple(dice.sample(names, dice.randint(1, len(names))))] * count
    few = [tuple(dice.sample(names, dice.randint(0 if dice.random() < 0.1 else 1, len(names)))) for _ in range(count)]
    return dice.choices(few[: dice.randint(2, 6)], k=count)


def _histories(dice: Random, there: list[TopicPartition], count: int, kind: str) -> list[tuple[TopicPartition, ...]]:
    """Nothing; or all partitions dealt out evenly among those who were there, or by chance; some claimed twice."""
    held: list[dict[TopicPartition, None]] = [{} for _ in range(count)]
    turns = dice.randint(1, count)
    if kind in ("dealt", "lopsided"):
        for place, partition in enumerate(dice.sample(there, len(there))):
            held[place % turns if kind == "dealt" else dice.randrange(turns)][partition] = None
    if kind in ("claimed", "lopsided"):
        for partition in dice.choices(there, k=dice.randrange(20)):
            held[dice.randrange(count)][partition] = None
    return [_grouped(each) for each in held]


def _grouped(partitions) -> tuple[TopicPartition, ...]:
    """By topic, as they come out of a subscription."""
    topics = dict.fromkeys(p.topic for p in partitions)
    return tuple(p for topic in topics for p in partitions if p.topic == topic)


def unsound(assigned: GroupAssignment, group: Group) -> list[str]:
    """What is wrong with an assignment: every partition that someone wants belongs to exactly one who wants it."""
    wants = {member.member_id: set(member.topics) for member in group.members}
    wanted = {p for p in everything(group.topics) if any(p.topic in topics for topics in wants.values())}
    given = [(partition, member) for member, partitions in assigned.items() for partition in partitions]
    faults = [f"{p} to {m}, who does not subscribe" for p, m in given if p.topic not in wants[m]]
    faults += [f"{p} to nobody" for p in sorted(wanted - {p for p, _ in given})]
    faults += [f"{p} does not exist" for p in sorted({p for p, _ in given} - wanted)]
    if len(given) != len({p for p, _ in given}):
        faults.append("one to two members")
    if set(assigned) != set(wants):
        faults.append("not exactly the members")
    return faults
