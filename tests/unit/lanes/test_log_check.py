"""Completion maps compared with logs that the tests make up."""

from __future__ import annotations

from uuid import UUID

import pytest

from multilane.client.fetch.offsets import PartlyFound
from multilane.commit.trigger_positions import Position
from multilane.errors import NetworkError, UnsupportedVersion, broker_error
from multilane.lanes.assignment import Assignment, ReadTopics, Start
from multilane.lanes.log_check import LogCheck
from multilane.types import LeaderEpoch, Offset, OffsetAndEpoch, OffsetAndTimestamp, TopicPartition

ONE, TWO = TopicPartition("t", 1), TopicPartition("t", 2)
THIS = UUID(int=7)
KNOWN = Start(100, ((102, 199),), 5, 4, THIS)


class Leader:
    """Logs that end at 300, in epoch 9, of which epoch 5 ends at 250."""

    def __init__(self, **facts) -> None:
        self.facts = {"id": {"t": THIS}, "end": (300, 9), "epochs": {5: (250, 5)}} | facts
        self.asked: list[str] = []

    def _told(self, name: str):
        self.asked.append(name)
        found = self.facts[name]
        if isinstance(found, list):
            found = found.pop(0) if len(found) > 1 else found[0]
        if isinstance(found, Exception):
            raise found
        return found

    async def topic_ids(self, topics):
        return {topic: id_ for topic, id_ in self._told("id").items() if topic in topics}

    async def log_ends(self, partitions, timeout=None):
        offset, epoch = self._told("end")
        return dict.fromkeys(partitions, OffsetAndEpoch(Offset(offset), LeaderEpoch(epoch)))

    async def epoch_ends(self, epochs):
        ends = self._told("epochs")
        return {p: OffsetAndEpoch(Offset(ends[e][0]), LeaderEpoch(ends[e][1])) for p, e in epochs.items() if e in ends}


async def checked(start: Start, **facts) -> Start:
    return (await LogCheck(Leader(**facts))({ONE: start}))[ONE]


async def test_a_partition_without_a_leader_keeps_no_other_from_beginning(caplog):
    """The member's partitions begin together: one whose map cannot be checked is read without it."""

    class Leaderless(Leader):
        async def log_ends(self, partitions, timeout=None):
            found = OffsetAndTimestamp(Offset(300), 0, LeaderEpoch(9))
            raise PartlyFound("timed out while looking up the offsets of t-2", {ONE: found})

    starts = await LogCheck(Leaderless())({ONE: KNOWN, TWO: KNOWN})
    assert starts[ONE] == KNOWN
    assert starts[TWO].runs == ()
    assert "t-2: the completion map committed with offset 100 does not match" in caplog.text


async def test_records_of_a_map_that_fits_are_skipped():
    assert await checked(KNOWN) == KNOWN


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"epochs": {5: (150, 5)}}, "leader epoch 5 ends at 150"),
        ({"epochs": {}}, "no records of its leader epoch 5"),
        ({"end": (150, 5)}, "the log ends at 150"),
        ({"id": {"t": UUID(int=8)}}, "topic id"),
        ({"id": broker_error(3, "gone")}, "topic id"),
        ({"epochs": UnsupportedVersion("too old")}, "no records of its leader epoch 5"),
    ],
)
async def test_what_does_not_fit_is_void_and_said(caplog, facts, why):
    found = await checked(KNOWN, **facts)
    assert (found.offset, found.runs, found.leader_epoch) == (100, (), 4)
    assert "t-1: the completion map committed with offset 100 does not match the log" in caplog.text
    assert why in caplog.text
    assert "up to 98 handled records are redelivered" in caplog.text


async def test_what_depends_on_nothing_is_not_asked_for():
    leader = Leader()
    assert await LogCheck(leader)({ONE: Start(100, topic_id=THIS)}) == {ONE: Start(100, topic_id=THIS)}
    assert leader.asked == []


async def test_without_runs_only_the_id_is_asked_for():
    leader = Leader()
    found = await LogCheck(leader)({ONE: Start(100), TWO: Start(5, leader_epoch=3)})
    assert found == {ONE: Start(100, topic_id=THIS), TWO: Start(5, leader_epoch=3, topic_id=THIS)}
    assert leader.asked == ["id"]


@pytest.mark.parametrize(("leads", "runs"), [(4, KNOWN.runs), (5, ())])
async def test_a_map_of_the_version_before_counts_while_the_same_leader_leads(leads, runs):
    found = await checked(Start(100, KNOWN.runs, leader_epoch=4), end=(300, leads))
    assert found.runs == runs
    assert found.end_epoch == (4 if runs else -1), "from now on its epoch is known"


async def test_nothing_begins_until_the_leader_has_answered(caplog):
    """A broker that is down neither confirms nor rejects the map."""
    leader = Leader(end=[NetworkError("refused"), NetworkError("refused"), (150, 5)])
    built = []

    async def build(starts):
        built.append(starts[ONE])

    assignment: Assignment = Assignment(ReadTopics(("t",)), build, lambda processor: None, LogCheck(leader))
    await assignment.begin({ONE: KNOWN})
    assert leader.asked.count("end") == 3
    assert [start.runs for start in built] == [()]
    assert caplog.text.count("retrying") == 2


# --- positions of triggers -------------------------------------------------------------------------------------------


async def test_positions_that_fit_the_log_are_used():
    start = KNOWN._replace(runs=(), positions={"a": Position(200, ((210, 220),)), "b": Position(100)})
    assert (await checked(start)).positions == start.positions


@pytest.mark.parametrize(
    "position", [Position(301), Position(2**62), Position(120, ((130, 260),)), Position(50, ((60, 90),))]
)
async def test_positions_that_do_not_fit_are_void_with_all_runs(position, caplog):
    """The last one claims records below the commit, for a trigger that returns: it is of another topic."""
    start = KNOWN._replace(runs=(), positions={"a": position, "b": Position(150, ((160, 170),))}, topic_id=UUID(int=8))
    found = await checked(start)
    assert found.offset == 100
    assert found.runs == ()
    assert found.positions == {"a": Position(min(100, position.offset)), "b": Position(100)}
    assert "the completion map committed with offset 100" in caplog.text


async def test_runs_below_the_commit_are_compared_with_the_log_too():
    leader = Leader()
    await LogCheck(leader)({ONE: KNOWN._replace(runs=(), positions={"back": Position(50, ((60, 90),))})})
    assert "end" in leader.asked
