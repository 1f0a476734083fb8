"""Where partitions begin that a group may have read before."""

from __future__ import annotations

import pytest

from multilane.client.fetch.buffer import FetchBuffer, Moved
from multilane.client.fetch.cursor import AtCommitted, Cursor, CursorTable, Lookup, Phase
from multilane.client.fetch.reset import ResetRule
from multilane.client.fetch.start_offsets import StartOffsets
from multilane.client.partition_state import PartitionState
from multilane.config.reset import parse_reset
from multilane.errors import GroupRefused, NoOffsetForPartition
from multilane.types import OffsetAndMetadata, TopicPartition
from multilane.wire.compose import EARLIEST
from response_builder import TOPIC_ID

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


class Group:
    """Remembers what it is asked for, to be answered when the test wants."""

    def __init__(self):
        self.asked = []
        self.unwanted = []

    def want(self, partitions, found, refused):
        self.asked.append((frozenset(partitions), found, refused))

    def unwant(self, partitions):
        self.unwanted.append(list(partitions))


class Scene:
    def __init__(self, reset="none", ids=None):
        self.group = Group()
        self.cursors = CursorTable()
        self.buffer = FetchBuffer(1 << 20, on_ready=lambda: None, on_room=lambda: None)
        self.stopped = []
        rule = ResetRule(parse_reset("auto.offset.reset", reset), lambda: 0.0)
        self.start_offsets = StartOffsets(self.group, self.cursors, self.buffer, rule, self.stop, (ids or {}).get)

    def stop(self, cursor, error):
        cursor.stop()
        self.stopped.append((cursor.partition, error))

    def begin(self, *partitions, generation=1):
        cursors = [Cursor(p, generation, AtCommitted()) for p in partitions]
        for cursor in cursors:
            self.cursors.put(cursor)
        self.buffer.expect({c.partition: c.generation for c in self.cursors})
        self.start_offsets.ask(cursors)
        return cursors


def test_at_what_was_committed():
    scene = Scene()
    first, second = scene.begin(T0, T1)
    ((asked, found, _),) = scene.group.asked
    assert asked == {T0, T1}
    found({T0: OffsetAndMetadata(7, 3)})
    assert (first.phase, first.offset, first.epoch) == (Phase.FETCHING, 7, 3)
    assert second.phase is Phase.AWAIT_COMMITTED
    assert scene.buffer.take(None, ()) == [Moved(T0, 7, 3)]
    found({T1: OffsetAndMetadata(0)})
    assert (second.phase, second.offset) == (Phase.FETCHING, 0)


def test_a_start_comes_with_its_topic_id():
    """Offsets read from there are never committed for a new topic of the same name."""
    scene = Scene(ids={"t": TOPIC_ID})
    (cursor,) = scene.begin(T0)
    scene.group.asked[0][1]({T0: OffsetAndMetadata(7, 3)})
    (moved,) = scene.buffer.take(None, ())
    assert moved.topic_id == cursor.topic_id == TOPIC_ID
    state = PartitionState(1, AtCommitted())
    state.reset_to(moved.offset, moved.epoch, 1, moved.topic_id)
    state.advance(9, 3, 2)
    assert state.to_commit().topic_id == TOPIC_ID


def test_a_group_that_has_not_begun_does_as_the_policy_says():
    scene = Scene("earliest")
    (cursor,) = scene.begin(T0)
    scene.group.asked[0][1]({T0: None})
    assert cursor.phase is Phase.AWAIT_RESET
    assert cursor.lookup == Lookup(EARLIEST, "the group has committed nothing")


def test_without_a_policy_it_stops():
    scene = Scene()
    scene.begin(T0)
    scene.group.asked[0][1]({T0: None})
    ((partition, error),) = scene.stopped
    assert partition == T0
    assert isinstance(error, NoOffsetForPartition)
    assert "seek first, or set auto.offset.reset" in str(error)


def test_what_is_refused_stops_that_partition_alone():
    scene = Scene()
    _, second = scene.begin(T0, T1)
    refused = GroupRefused("no")
    scene.group.asked[0][2](T0, refused)
    assert scene.stopped == [(T0, refused)]
    assert second.phase is Phase.AWAIT_COMMITTED


@pytest.mark.parametrize("answer", [{T0: OffsetAndMetadata(7)}, {T0: None}])
def test_an_answer_to_an_earlier_assignment_says_nothing(answer):
    scene = Scene()
    scene.begin(T0)
    (again,) = scene.begin(T0, generation=2)
    scene.group.asked[0][1](answer)
    scene.group.asked[0][2](T0, GroupRefused("no"))
    assert again.phase is Phase.AWAIT_COMMITTED
    assert scene.stopped == []


def test_one_that_was_sought_meanwhile_stays_where_it_is():
    scene = Scene()
    (cursor,) = scene.begin(T0)
    cursor.lost(Lookup(EARLIEST, "the topic was made again"))
    scene.group.asked[0][1]({T0: OffsetAndMetadata(7)})
    assert cursor.phase is Phase.AWAIT_RESET


def test_where_nothing_waits_nobody_is_asked():
    scene = Scene()
    scene.start_offsets.ask([Cursor(T0, 1, Lookup(EARLIEST, "seek"))])
    assert scene.group.asked == []


def test_what_will_not_begin_is_asked_for_no_longer():
    scene = Scene()
    first, second = scene.begin(T0, T1)
    scene.group.asked[0][1]({T1: OffsetAndMetadata(7)})
    scene.start_offsets.give_up([first, second])
    assert scene.group.unwanted == [[T0]], "the other has begun"
    scene.start_offsets.give_up([second])
    assert scene.group.unwanted == [[T0]]
