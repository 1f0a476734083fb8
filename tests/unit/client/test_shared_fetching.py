"""Several consumers on one fetching: what is asked once for all, over which connections, and who gets what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from batch_builder import Batch, rows
from multilane.client.fetch.buffer import FetchBuffer
from multilane.client.fetch.cursor import At, Cursor, CursorTable, Lookup
from multilane.client.fetch.decoder import DecodeTask
from multilane.client.fetch.fetch_connections import ANSWERS_WITHIN, EXTRA_WAIT_MS, MAX_CONNECTIONS
from multilane.client.fetch.fetch_requests import FetchContext
from multilane.client.fetch.fetching import FetchManager
from multilane.client.fetch.reader import FetchSettings, Reader
from multilane.client.fetch.shared import SharedFetching
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import CONTROL, NEVER, Channel, RawResponse, UnsentRequest
from multilane.errors import NetworkError, SaslError
from multilane.types import LeaderEpoch, NodeId, Offset, TopicPartition
from multilane.wire.compose import EARLIEST, FetchClass
from multilane.wire.records.decode import load_kernels
from recorded_errors import record_errors
from response_builder import as_array, cluster_of, fetch_response, frame_of

P, Q, R, S = (TopicPartition("t", number) for number in range(4))
MB = 1 << 20
BACKOFF = RequestBackoff(0.1, 1.0, jitter=0.0)
KIND = FetchClass(500, 1, 50 * MB, False, "")
HIGH = 1_000_000


class Consumer:
    """A reader with its cursors and its buffer, and its errors."""

    def __init__(self, hall: Hall, limit: int, policy: FetchSettings) -> None:
        self.errors: list[tuple[Any, ...]] = []
        self.changed: list[Cursor] = []
        self.cursors = CursorTable(self._changed)
        self._hall = hall
        self.buffer = FetchBuffer(limit, on_ready=lambda: None, on_room=lambda: None)
        self.generations: dict[TopicPartition, int] = {}
        self.reader = Reader(policy, self.cursors, self.buffer, MB, record_errors(self.errors), lambda _event: None)

    def _changed(self, cursor: Cursor) -> None:
        self.changed.append(cursor)
        self._hall.fetching.look_at(self.reader, cursor)

    def seek(self, partition: TopicPartition, offset: int) -> Cursor:
        self.generations[partition] = self.generations.get(partition, 0) + 1
        self.buffer.expect(self.generations)
        cursor = Cursor(partition, self.generations[partition], At(Offset(offset), LeaderEpoch(5)))
        cursor.leader_epoch = LeaderEpoch(5)
        self.cursors.put(cursor)
        return cursor

    def cursor(self, partition: TopicPartition = P) -> Cursor:
        found = self.cursors.get(partition)
        assert found is not None
        return found

    def at(self, partition: TopicPartition = P) -> int:
        return self.cursor(partition).offset


class Hall:
    """A network thread's fetching with the clock, the brokers and the connections in the test's hands."""

    def __init__(self, *, connections: int = 1, partitions: Sequence[TopicPartition] = (P, Q, R, S)) -> None:
        load_kernels()
        self.now = 100.0
        self.policy = FetchSettings(KIND, BACKOFF, 300.0, connections, 1 << 26)
        self.partitions = partitions
        self.metadata = MetadataManager(MetadataPolicy(300.0, BACKOFF, 300.0), MetadataListeners())
        self.lead()
        self.tasks: list[DecodeTask] = []
        self.closed: list[str] = []
        context = FetchContext(lambda _frame, tasks, _policy: self.tasks.extend(tasks), self.closed.append)
        self.fetching = SharedFetching(self.metadata, context)

    def lead(self, node: int = 1, epoch: int = 5) -> None:
        self.metadata.cluster = cluster_of(dict.fromkeys(self.partitions, (node, epoch)))

    def consumer(
        self, starts: Mapping[TopicPartition, int] | None = None, *, limit: int = 100 * MB, **policy: Any
    ) -> Consumer:
        kind = FetchSettings(**{**{f: getattr(self.policy, f) for f in FetchSettings.__slots__}, **policy})
        made = Consumer(self, limit, kind)
        for partition, offset in (starts or {}).items():
            made.seek(partition, offset)
        return made

    def poll(self, after: float = 0.0) -> list[UnsentRequest]:
        self.now += after
        return list(self.fetching.poll(self.now).requests)

    def ask(self, after: float = 0.0) -> UnsentRequest:
        (request,) = self.poll(after)
        return request

    def answer(
        self,
        request: UnsentRequest,
        answers: Mapping[TopicPartition, Mapping[str, Any]] | None = None,
        session: int = 0,
    ) -> None:
        frame = as_array(frame_of(fetch_response(17, answers or {}, session=session), 3))
        request.on_response(RawResponse(frame, 17, 3, request.node or NodeId(0), "broker"), self.now)

    @property
    def manager(self) -> FetchManager:
        (manager,) = self.fetching._managers.values()
        return manager


def _wanted(request: UnsentRequest) -> dict[int, int]:
    pairs = [(p.partition, p.fetch_offset) for t in request.build(17).topics for p in t.partitions]
    assert len(dict(pairs)) == len(pairs), "brokers drop a second mention in silence"
    return dict(pairs)


def _batch(offset: int = 10, count: int = 3, high: int | None = None, size: int = 20) -> dict[str, Any]:
    data = Batch(rows(count, size=size), offset, leader_epoch=5).build()
    return {"records": data, "high": offset + count if high is None else high}


AT_END: Mapping[str, Any] = {"high": 10}


# --- one request for all ---------------------------------------------------------------------------------------------


def test_partitions_of_several_consumers_travel_in_one_request():
    hall = Hall()
    one, two = hall.consumer({P: 10, Q: 20}), hall.consumer({R: 30})
    request = hall.ask()
    assert _wanted(request) == {0: 10, 1: 20, 2: 30}
    hall.answer(request, {P: _batch(10), R: _batch(30)})
    assert (one.at(P), one.at(Q), two.at(R)) == (13, 20, 33)
    assert [len(task.takers) for task in hall.tasks] == [1, 1]


def test_what_several_want_from_one_offset_is_asked_for_once_and_decoded_once():
    hall = Hall()
    consumers = [hall.consumer({P: 10}) for _ in range(5)]
    request = hall.ask()
    assert _wanted(request) == {0: 10}
    hall.answer(request, {P: _batch(10)})
    (task,) = hall.tasks
    assert [taker.buffer for taker in task.takers] == [c.buffer for c in consumers]
    assert [c.at() for c in consumers] == [13] * 5
    assert _wanted(hall.ask()) == {0: 13}


def test_who_comes_to_want_what_is_under_way_joins_it():
    hall = Hall()
    one = hall.consumer({P: 10})
    request = hall.ask()
    two = hall.consumer({P: 10})
    assert hall.poll() == []
    hall.answer(request, {P: _batch(10)})
    (task,) = hall.tasks
    assert [taker.buffer for taker in task.takers] == [one.buffer, two.buffer]
    assert (one.at(), two.at()) == (13, 13)


def test_who_catches_up_joins_those_who_wait():
    hall = Hall(connections=2)
    hall.consumer({P: 13})
    waiting = hall.ask()
    late = hall.consumer({P: 10})
    request = hall.ask()
    assert request.channel != waiting.channel
    hall.answer(request, {P: _batch(10)})
    assert hall.poll() == [], "it stands where the other one waits"
    hall.answer(waiting, {P: _batch(13)})
    assert late.at() == 16
    assert _wanted(hall.ask()) == {0: 16}


def test_another_epoch_is_another_question():
    hall = Hall(connections=2)
    one, two = hall.consumer({P: 10}), hall.consumer({P: 10})
    two.cursor().leader_epoch = LeaderEpoch(4)
    requests = hall.poll()
    epochs = [p.current_leader_epoch for r in requests for t in r.build(17).topics for p in t.partitions]
    assert sorted(epochs) == [4, 5]
    hall.answer(requests[0], {P: _batch(10)})
    assert sorted([one.at(), two.at()]) == [10, 13]


def test_another_class_has_lines_of_its_own():
    hall = Hall()
    hall.consumer({P: 10})
    hall.consumer({P: 10}, kind=FetchClass(500, 1, 50 * MB, True, ""))
    hall.consumer({P: 10}, check_crcs=False)
    requests = hall.poll()
    assert len({request.channel.owner for request in requests}) == 3


def test_partitions_without_news_are_not_looked_at_again(monkeypatch):
    many = [TopicPartition("t", number) for number in range(300)]
    hall = Hall(partitions=many)
    consumers = [hall.consumer({many[n]: 10}) for n in range(300)]
    hall.answer(hall.ask(), dict.fromkeys(many, AT_END), session=7)
    hall.answer(hall.ask(), {}, session=7)
    looked: list[Cursor] = []
    manager, look = hall.manager, hall.manager._look
    monkeypatch.setattr(manager, "_look", lambda cursor, *rest: (looked.append(cursor), look(cursor, *rest))[1])
    request = hall.ask()
    assert _wanted(request) == {}, "nothing has changed since the last request"
    hall.answer(request, {many[17]: _batch(10)}, session=7)
    assert _wanted(hall.ask()) == {17: 13}
    assert looked == [consumers[17].cursor(many[17])]


# --- connections -----------------------------------------------------------------------------------------------------


def test_another_offset_of_a_partition_travels_on_another_line():
    hall = Hall(connections=2)
    hall.consumer({P: 10})
    hall.consumer({P: 50})
    one, two = hall.poll()
    assert (_wanted(one), _wanted(two)) == ({0: 10}, {0: 50})
    assert one.channel != two.channel


def test_what_is_wanted_while_all_lines_wait_travels_at_once():
    hall = Hall()
    consumer = hall.consumer({P: 10})
    hall.answer(hall.ask(), {P: AT_END})
    base = hall.ask()
    consumer.seek(Q, 20)
    extra = hall.ask()
    assert _wanted(extra) == {1: 20}
    assert extra.channel.owner != base.channel.owner, "so that it can be closed alone"


def test_extra_lines_wait_but_shortly_so_that_one_comes_free():
    hall = Hall()
    consumer = hall.consumer({P: 10})
    base = hall.ask()
    extras = []
    for number, partition in enumerate((Q, R, S)):
        consumer.seek(partition, 10 + number)
        extras.append(hall.ask())
    assert base.build(17).max_wait.total_seconds() == 0.5
    assert [e.build(17).max_wait.total_seconds() for e in extras] == [EXTRA_WAIT_MS / 1_000] * 3
    hall.consumer({P: 77})
    assert hall.poll() == [], "there is no line left"
    hall.answer(extras[1], {R: {"high": 11}})
    assert _wanted(hall.ask()) == {0: 77, 2: 11}


def test_an_extra_line_is_given_up_when_its_partitions_are_at_the_end():
    hall = Hall()
    consumer = hall.consumer({P: 10})
    hall.answer(hall.ask(), {P: AT_END}, session=7)
    base = hall.ask()
    consumer.seek(Q, 20)
    extra = hall.ask()
    hall.answer(extra, {Q: _batch(20)}, session=8)
    again = hall.ask()
    assert again.channel == extra.channel, "the base still waits"
    assert hall.closed == []
    hall.answer(base, {}, session=7)
    merged, closing_request = hall.poll()
    assert (merged.channel, _wanted(merged)) == (base.channel, {1: 23})
    assert hall.closed == [extra.channel.owner]
    assert (closing_request.channel, closing_request.node) == (CONTROL, 1)
    assert (closing_request.build(17).session_id, closing_request.build(17).session_epoch) == (8, -1)
    hall.answer(merged, {Q: _batch(23)}, session=7)
    assert consumer.at(Q) == 26
    assert _wanted(hall.ask()) == {1: 26}


def test_an_extra_line_with_data_on_its_way_is_left_alone():
    hall = Hall()
    consumer = hall.consumer({P: 10})
    hall.answer(hall.ask(), {P: AT_END})
    base = hall.ask()
    consumer.seek(Q, 20)
    extra = hall.ask()
    hall.answer(base, {})
    assert hall.ask().channel == base.channel
    assert hall.closed == []
    hall.answer(extra, {Q: _batch(20, high=HIGH)})
    extra = hall.ask()
    assert extra.channel.owner != base.channel.owner
    assert hall.poll() == []
    hall.answer(extra, {Q: _batch(23)})
    assert _wanted(hall.ask()) == {1: 26}


def test_a_line_that_is_about_to_be_answered_is_waited_for_but_not_long():
    hall = Hall()
    consumer = hall.consumer({P: 10})
    hall.answer(hall.ask(), {P: _batch(10, high=HIGH)})
    lagging = hall.ask()
    consumer.seek(Q, 20)
    assert hall.poll() == []
    assert hall.fetching.poll(hall.now).wait == pytest.approx(ANSWERS_WITHIN)
    extra = hall.ask(ANSWERS_WITHIN)
    assert extra.channel.owner != lagging.channel.owner
    assert _wanted(extra) == {1: 20}


def test_a_line_with_data_takes_what_waits_for_it():
    hall = Hall()
    consumer = hall.consumer({P: 10})
    hall.answer(hall.ask(), {P: _batch(10, high=HIGH)})
    lagging = hall.ask()
    consumer.seek(Q, 20)
    assert hall.poll() == []
    hall.answer(lagging, {P: _batch(13, high=HIGH)})
    request = hall.ask()
    assert (request.channel, _wanted(request)) == (lagging.channel, {1: 20, 0: 16})


def test_there_are_few_lines_and_whoever_finds_none_waits_his_turn():
    hall = Hall(connections=2)
    consumers = [hall.consumer({P: 10 * number}) for number in range(1, 7)]
    requests = hall.poll()
    assert len({request.channel for request in requests}) == MAX_CONNECTIONS
    assert hall.poll() == []
    hall.answer(requests[0], {P: _batch(10, high=HIGH)})
    assert _wanted(hall.ask()) == {0: 50}, "the one that was never asked for goes first"
    assert consumers[0].at() == 13


def test_no_more_lines_to_a_broker_in_trouble():
    hall = Hall()
    hall.consumer({P: 10})
    hall.ask().on_failure(NetworkError("lost"), hall.now)
    hall.consumer({Q: 20})
    assert hall.poll() == []
    assert hall.fetching.poll(hall.now).wait == pytest.approx(0.1)
    assert _wanted(hall.ask(0.1)) == {0: 10, 1: 20}


def test_an_extra_line_that_fails_rests_before_it_is_given_up():
    hall = Hall()
    consumer = hall.consumer({P: 10})
    hall.answer(hall.ask(), {P: AT_END})
    hall.ask()
    consumer.seek(Q, 20)
    extra = hall.ask()
    extra.on_failure(NetworkError("is unreachable"), hall.now)
    assert hall.poll() == []
    assert hall.fetching.poll(hall.now).wait == pytest.approx(0.1)
    again = hall.ask(0.1)
    assert _wanted(again) == {1: 20}


def test_lines_settle_at_the_base_whatever_came_meanwhile():
    """Consumers come at any time; the broker answers who has data at once and lets the others wait."""
    many = [TopicPartition("t", number) for number in range(31)]
    hall = Hall(connections=2, partitions=many)
    wire: list[UnsentRequest] = []
    consumers = []
    for number, partition in enumerate(many):
        consumers.append(hall.consumer({partition: 10, many[0]: 10 + 3 * (number % 3)}))
        wire += hall.poll(0.05)
        wire = [request for request in wire if request.channel.owner not in hall.closed]
        if number % 3 == 2:
            hall.answer(wire.pop(0), {})
    for _ in range(40):
        wire += hall.poll(0.5)
        wire = [r for r in wire if r.channel.owner not in hall.closed and r.channel != CONTROL]
        answers = {p: AT_END if p != many[0] else _batch(10, 6) for p in many}
        hall.answer(wire.pop(0), answers)
    assert len(wire) + 1 == 2
    assert {c.at(many[0]) for c in consumers} == {16}


# --- pace ------------------------------------------------------------------------------------------------------------


def test_at_the_end_of_the_log_a_line_asks_once_in_its_pace():
    hall = Hall()
    consumer = hall.consumer({P: 10}, pace=0.25)
    hall.answer(hall.ask(), {P: _batch(10)})
    assert consumer.at() == 13
    resting = hall.fetching.poll(hall.now)
    assert (resting.requests, resting.wait) == ((), 0.25)
    assert hall.poll(0.125) == []
    assert _wanted(hall.ask(0.125)) == {0: 13}


def test_a_line_that_waited_for_longer_goes_on_at_once():
    hall = Hall()
    hall.consumer({P: 10}, pace=0.25)
    request = hall.ask()
    hall.now += 0.25
    hall.answer(request, {P: _batch(10)})
    assert _wanted(hall.ask()) == {0: 13}


def test_what_is_known_to_lag_is_not_kept_waiting():
    hall = Hall()
    hall.consumer({P: 10}, pace=0.25)
    hall.answer(hall.ask(), {P: _batch(10, high=100)})
    assert _wanted(hall.ask()) == {0: 13}


def test_what_comes_to_be_wanted_ends_the_rest_of_a_line():
    hall = Hall()
    consumer = hall.consumer({P: 10}, pace=0.25)
    base = hall.ask()
    hall.answer(base, {P: _batch(10)})
    assert hall.poll() == []
    consumer.seek(Q, 20)
    request = hall.ask()
    assert _wanted(request) == {0: 13, 1: 20}
    assert request.channel == base.channel, "no line is opened beside one that rests"


# --- one reader's affairs --------------------------------------------------------------------------------------------


def test_who_leaves_loses_what_is_under_way_and_nobody_else_does():
    hall = Hall()
    stays, leaves = hall.consumer({P: 10, Q: 20}), hall.consumer({P: 10, R: 30})
    request = hall.ask()
    hall.fetching.leave(leaves.reader)
    hall.answer(request, {P: _batch(10), Q: _batch(20), R: _batch(30)}, session=7)
    assert (stays.at(P), stays.at(Q)) == (13, 23)
    assert (leaves.at(P), leaves.at(R)) == (10, 30)
    assert [[taker.buffer for taker in task.takers] for task in hall.tasks] == [[stays.buffer]] * 2
    entity = hall.ask().build(17)
    assert [t.partitions for t in entity.forgotten_topics_data] == [(2,)]


def test_the_last_to_leave_ends_the_sessions_and_the_connections():
    hall = Hall(connections=2)
    one, two = hall.consumer({P: 10}), hall.consumer({Q: 10})
    first, second = hall.poll()
    hall.answer(first, {P: AT_END}, session=7)
    hall.answer(second, {Q: AT_END}, session=8)
    hall.poll()
    hall.fetching.leave(one.reader)
    assert hall.closed == []
    hall.fetching.leave(two.reader)
    assert hall.closed == [first.channel.owner]
    closing_requests = [request.build(17) for request in hall.poll()]
    assert [(f.session_id, f.session_epoch, f.topics) for f in closing_requests] == [(7, -1, ()), (8, -1, ())]
    two.cursor(Q).paused = True
    assert hall.fetching.poll(hall.now).requests == (), "a late word of one that left begins nothing"


def test_seeking_away_leaves_the_others_where_they_are():
    hall = Hall(connections=2)
    stays, seeks = hall.consumer({P: 10}), hall.consumer({P: 10})
    request = hall.ask()
    seeks.seek(P, 50)
    assert _wanted(hall.ask()) == {0: 50}
    hall.answer(request, {P: _batch(10)})
    assert (stays.at(), seeks.at()) == (13, 50)


def test_a_cursor_that_lost_its_place_is_free_at_once():
    """Whoever looks for a new place asks only for cursors that are not in flight, and may be asked before us."""
    hall = Hall()
    stays, lost = hall.consumer({P: 10}), hall.consumer({P: 10})
    request = hall.ask()
    lost.cursor().lost(Lookup(EARLIEST, "the topic was made again"))
    assert not lost.cursor().in_flight
    assert stays.cursor().in_flight
    hall.answer(request, {P: _batch(10)})
    assert (stays.at(), lost.at()) == (13, 10)


def test_pausing_keeps_what_is_under_way_and_asks_no_more():
    hall = Hall()
    stays, pauses = hall.consumer({P: 10}), hall.consumer({P: 10, Q: 20})
    request = hall.ask()
    pauses.cursor(P).paused = pauses.cursor(Q).paused = True
    assert hall.poll() == []
    hall.answer(request, {P: _batch(10)}, session=7)
    assert (stays.at(), pauses.at()) == (13, 13)
    request = hall.ask()
    assert _wanted(request) == {0: 13}
    assert [t.partitions for t in request.build(17).forgotten_topics_data] == [(1,)]
    hall.answer(request, {P: _batch(13)}, session=7)
    assert (stays.at(), pauses.at()) == (16, 13)


def test_each_learns_of_its_own_trouble():
    hall = Hall()
    sure, guessing = hall.consumer({P: 10}), hall.consumer({P: 7})
    first, second = hall.poll()
    hall.answer(second, {P: _batch(7)})  # not decoded yet: whether 10 is right is a guess
    hall.answer(first, {P: {"code": 1}})
    assert sure.errors == [("out of range", P)]
    hall.answer(hall.ask(), {P: {"code": 1}})
    assert sure.errors == [("out of range", P)] * 2
    assert guessing.errors == []


def test_a_refused_login_is_reported_to_all_who_waited():
    hall = Hall()
    consumers = [hall.consumer({P: 10}), hall.consumer({P: 10, Q: 20})]
    hall.ask().on_failure(SaslError("wrong password"), hall.now)
    assert [[what for what, *_ in c.errors] for c in consumers] == [["refused"], ["refused"]]


@pytest.mark.parametrize("answers", [{}, {P: {"high": 10}}], ids=["no news", "news"])
def test_partitions_that_wait_are_asked_of_a_new_leader(answers):
    hall = Hall()
    consumer = hall.consumer({P: 10})
    hall.answer(hall.ask(), {P: AT_END}, session=7)
    request = hall.ask()
    hall.lead(node=2, epoch=6)
    assert hall.poll() == []
    assert consumer.cursor().in_flight
    consumer.changed.clear()
    hall.answer(request, answers, session=7)
    assert not consumer.cursor().in_flight, "so that the new leader can be validated"
    assert consumer.changed == [consumer.cursor()], "and whoever validates is notified"
    consumer.cursor().leader_epoch = LeaderEpoch(6)
    assert hall.ask().node == 2


def test_a_new_epoch_that_a_cursor_takes_over_in_flight_is_asked_under_next_time():
    """A cursor that has read nothing has nothing to be validated: it just goes on under the new epoch."""
    hall = Hall()
    consumer = hall.consumer({P: 10})
    hall.answer(hall.ask(), {P: AT_END}, session=7)
    request = hall.ask()
    hall.lead(epoch=6)
    consumer.cursor().leader_epoch = LeaderEpoch(6)
    assert hall.poll() == []
    hall.answer(request, {}, session=7)
    ((partition,),) = (t.partitions for t in hall.ask().build(17).topics)
    assert partition.current_leader_epoch == 6


def test_who_waits_for_a_leader_goes_on_as_soon_as_there_is_one():
    hall = Hall()
    found = hall.metadata.cluster
    hall.metadata.cluster = found.without("t")
    consumer = hall.consumer({P: 10})
    assert hall.poll() == []
    assert consumer.cursor().not_before > hall.now
    hall.metadata.cluster = found
    assert _wanted(hall.ask()) == {0: 10}


def test_a_new_leader_is_validated_before_it_is_asked():
    hall = Hall()
    consumer = hall.consumer({P: 10})
    hall.answer(hall.ask(), {P: AT_END}, session=7)
    hall.answer(hall.ask(), {}, session=7)
    hall.lead(node=2, epoch=6)  # between an answer and the next request
    poll = hall.fetching.poll(hall.now)
    assert (poll.requests, poll.wait) == ((), 0.0)
    assert not consumer.cursor().in_flight


def test_a_partition_that_waits_at_a_replica_goes_back_to_the_leader_in_time():
    hall = Hall()
    hall.metadata.cluster = cluster_of({P: (1, 5), Q: (2, 5)})
    hall.consumer({P: 10})
    hall.answer(hall.ask(), {P: {"replica": 2}})
    request = hall.ask()
    assert request.node == 2
    hall.answer(request, {P: AT_END}, session=7)
    request = hall.ask()
    assert hall.poll(300.0) == []
    hall.answer(request, {}, session=7)
    assert hall.ask().node == 1


# --- memory ----------------------------------------------------------------------------------------------------------


def test_a_reader_without_room_does_not_stop_the_others():
    hall = Hall()
    full, other = hall.consumer({P: 10, Q: 10}, limit=2 * MB), hall.consumer({P: 10, R: 10})
    hall.answer(hall.ask(), {Q: _batch(10, 1, size=3 * MB // 2)})
    request = hall.ask()
    assert _wanted(request) == {0: 10, 2: 10}
    hall.answer(request, {P: _batch(10)})
    assert (full.at(P), other.at(P)) == (10, 13)
    assert _wanted(hall.ask()) == {0: 13, 2: 10}
    full.buffer.discard(hall.tasks[0].takers[0].slot)
    assert [_wanted(r) for r in hall.poll()] == [{0: 10, 1: 11}]


def test_those_who_are_short_of_room_ask_for_less_of_each_partition():
    hall = Hall()
    hall.consumer({P: 10, Q: 10}, limit=MB)
    hall.consumer({R: 10})
    entity = hall.ask().build(17)
    sizes = {p.partition: p.partition_max_bytes for t in entity.topics for p in t.partitions}
    assert sizes == {0: MB // 2, 1: MB // 2, 2: MB}
    assert entity.max_bytes == 2 * MB


@pytest.mark.parametrize("order", [[P, Q, R, S], [S, R, Q, P], [Q, S, R, P]])
@pytest.mark.parametrize("apart", [0.0, 0.006, 0.25])
def test_fetches_that_wait_for_others_do_not_starve_a_partition_of_a_small_reader(order, apart):
    """The other reader is at the end of all logs, and its two fetches wait. They never are answered at one time."""
    ends = {P: 10, Q: 10, R: 13, S: 10}
    hall = Hall(connections=2)
    hall.consumer(ends)
    waiting = hall.poll()
    small = hall.consumer({p: 10 for p in order}, limit=1)
    for _ in range(12):
        waiting += hall.poll(apart)
        request = waiting.pop(0)
        wanted = {partition: {"high": ends[partition]} for partition in ends if partition.partition in _wanted(request)}
        if _wanted(request).get(R.partition) == 10:
            wanted[R] = _batch(10)
        hall.now += 0.5 - apart
        hall.answer(request, wanted)
    assert small.at(R) == 13


def test_each_is_charged_for_its_own_records():
    hall = Hall()
    one, two, three = hall.consumer({P: 10}), hall.consumer({P: 10}), hall.consumer({Q: 10})
    answers = {P: _batch(10), Q: _batch(10, 9)}
    hall.answer(hall.ask(), answers)
    sizes = [len(answers[p]["records"]) for p in (P, P, Q)]
    assert [c.buffer.charged_bytes for c in (one, two, three)] == sizes


def test_one_alone_is_charged_for_the_frame():
    hall = Hall()
    one, other = hall.consumer({P: 10}), hall.consumer({Q: 10})
    answers = {P: _batch(10)}
    hall.answer(hall.ask(), answers)
    assert one.buffer.charged_bytes > len(answers[P]["records"])
    assert other.buffer.charged_bytes == 0


def test_a_small_share_of_a_large_frame_is_copied_out():
    hall = Hall()
    hall.consumer({P: 10, R: 10})
    hall.consumer({Q: 10, R: 10})
    large = _batch(10, 1, size=2 * MB)
    hall.answer(hall.ask(), {P: large, Q: _batch(10)})
    assert {task.fetched.partition: task.copy_out for task in hall.tasks} == {0: False, 1: True}
    hall.tasks.clear()
    hall.answer(hall.ask(), {P: _batch(11), Q: _batch(13)})
    assert [task.copy_out for task in hall.tasks] == [False, False], "a small frame is not worth it"


def test_nothing_wanted_nothing_asked():
    hall = Hall()
    consumer = hall.consumer()
    assert hall.fetching.poll(hall.now).wait == NEVER
    hall.fetching.leave(consumer.reader)
    assert hall.poll() == []


def test_channels_of_the_base_are_numbered():
    hall = Hall(connections=2)
    hall.consumer({P: 10, Q: 10})
    one, two = hall.poll()
    assert (one.channel, two.channel) == (Channel(one.channel.owner, 0), Channel(one.channel.owner, 1))
