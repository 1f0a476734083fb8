"""The fetch manager: scripted Fetch responses as real bytes, and what becomes of the cursors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import pytest

from batch_builder import Batch, rows
from multilane.client.cluster import Leadership
from multilane.client.fetch.buffer import FetchBuffer
from multilane.client.fetch.cursor import At, Cursor, CursorTable, Lookup, Phase
from multilane.client.fetch.decoder import DecodeTask
from multilane.client.fetch.fetch_requests import FetchContext
from multilane.client.fetch.fetching import FetchManager
from multilane.client.fetch.reader import FetchSettings, Reader
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER, Channel, Poll, RawResponse, UnsentRequest
from multilane.errors import (
    BrokerError,
    CorruptBatch,
    FrameError,
    NetworkError,
    SaslError,
    UnsupportedBatch,
    UnsupportedVersion,
)
from multilane.metrics.observer import Counts
from multilane.types import LeaderEpoch, Node, NodeId, Offset, TopicPartition
from multilane.wire.compose import EARLIEST, FetchClass
from multilane.wire.messages import ApiKey
from multilane.wire.records.decode import load_kernels
from recorded_errors import record_errors
from response_builder import TOPIC_ID, as_array, cluster_of, fetch_response, frame_of

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
MB = 1 << 20
BACKOFF = RequestBackoff(0.1, 1.0, jitter=0.0)
KIND = FetchClass(500, 1, 50 * MB, False, "rack-a")


class Bench:
    def __init__(
        self,
        leaders: Mapping[TopicPartition, tuple[int | None, int]] | None = None,
        *,
        limit: int = 100 * MB,
        ids: Mapping[str, UUID | None] | None = None,
        offset: int = 10,
        connections: int = 1,
    ) -> None:
        load_kernels()
        leaders = {P: (1, 5), Q: (1, 5)} if leaders is None else leaders
        self.now = 100.0
        self.metadata = MetadataManager(MetadataPolicy(300.0, BACKOFF, 300.0), MetadataListeners())
        self.metadata.cluster = cluster_of(leaders, ids=ids)
        self.metadata._update_wanted = False
        self.metadata._progress.refreshed_at = self.now
        self.cursors = CursorTable(lambda cursor: self.manager.look_at(self.reader, cursor))
        self.buffer = FetchBuffer(limit, on_ready=lambda: None, on_room=lambda: None)
        self.tasks: list[DecodeTask] = []
        self.errors: list[tuple[Any, ...]] = []
        self.counts = Counts()
        self.throttled: list[int] = []
        policy = FetchSettings(KIND, BACKOFF, 300.0, connections, 1 << 26)
        context = FetchContext(lambda _f, tasks, _p: self.tasks.extend(tasks), lambda _: None, self.counts)
        self.manager = FetchManager(self.metadata, policy, context, "fetch-9")
        self.reader = Reader(policy, self.cursors, self.buffer, MB, record_errors(self.errors), lambda _event: None)
        self.buffer.expect(dict.fromkeys(leaders, 1))
        for partition in leaders:
            cursor = Cursor(partition, 1, At(Offset(offset), LeaderEpoch(5)))
            cursor.leader_epoch = LeaderEpoch(5)
            self.cursors.put(cursor)

    def cursor(self, partition: TopicPartition = P) -> Cursor:
        found = self.cursors.get(partition)
        assert found is not None
        return found

    def poll(self, after: float = 0.0) -> Poll:
        self.now += after
        return self.manager.poll(self.now)

    def ask(self, after: float = 0.0) -> UnsentRequest:
        (request,) = self.poll(after).requests
        return request

    def answer(
        self,
        request: UnsentRequest,
        answers: Mapping[TopicPartition, Mapping[str, Any]],
        version: int = 17,
        **more: Any,
    ) -> None:
        frame = as_array(frame_of(fetch_response(version, answers, **more), 3))
        raw = RawResponse(frame, version, 3, request.node or NodeId(0), "broker", self.throttled.append)
        request.on_response(raw, self.now)

    @property
    def wants_metadata(self) -> bool:
        return bool(self.metadata.poll(self.now).requests)


def _wanted(request: UnsentRequest, version: int = 17) -> dict[int, int]:
    return {p.partition: p.fetch_offset for t in request.build(version).topics for p in t.partitions}


def _records(count: int, offset: int = 10, **more: Any) -> bytes:
    return Batch(rows(count), offset, leader_epoch=5, **more).build()


# --- asking ----------------------------------------------------------------------------------------------------------


def test_two_free_lines_share_the_partitions_and_each_keeps_its_session():
    four = [TopicPartition("t", n) for n in range(4)]
    bench = Bench(dict.fromkeys(four, (1, 5)), connections=2)
    one, two = bench.poll().requests
    assert (one.channel, two.channel) == (Channel("fetch-9", 0), Channel("fetch-9", 1))
    assert (_wanted(one), _wanted(two)) == ({0: 10, 2: 10}, {1: 10, 3: 10})
    assert bench.poll().requests == ()
    bench.answer(two, {four[1]: {"records": _records(2), "high": 12}}, session=7)
    (again,) = bench.poll().requests
    assert again.channel == two.channel
    assert _wanted(again) == {1: 12}, "only what changed is named in a session"


def test_brokers_take_turns_where_room_is_short():
    bench = Bench({P: (1, 5), Q: (2, 5)}, limit=MB)
    asked = []
    for _ in range(4):
        request = bench.ask()
        asked.append(request.node)
        bench.answer(request, {})
    assert asked == [1, 2, 1, 2]


def test_what_comes_to_be_fetched_does_not_wait_behind_a_fetch_that_waits():
    bench = Bench({P: (1, 5), Q: (1, 5)}, connections=2)
    bench.cursor(Q).paused = True
    first = bench.ask()
    bench.cursor(Q).paused = False
    second = bench.ask()
    assert (_wanted(first), _wanted(second)) == ({0: 10}, {1: 10})
    assert first.channel != second.channel


def test_one_request_per_broker_with_all_of_its_partitions():
    bench = Bench({P: (1, 5), Q: (2, 5), TopicPartition("t", 2): (1, 5)})
    one, two = sorted(bench.poll().requests, key=lambda r: r.node or 0)
    assert (one.node, two.node) == (1, 2)
    assert (_wanted(one), _wanted(two)) == ({0: 10, 2: 10}, {1: 10})
    assert (one.api, one.channel, one.raw, one.at_least) == (ApiKey.FETCH, Channel("fetch-9"), True, 12)
    assert bench.poll().requests == ()
    assert all(cursor.in_flight for cursor in bench.cursors)


def test_a_request_says_who_is_thought_to_lead():
    entity = Bench({P: (1, 5)}).ask().build(17)
    (topic,) = entity.topics
    assert topic.topic_id == TOPIC_ID
    assert topic.partitions[0].current_leader_epoch == 5
    assert (entity.rack_id, entity.max_bytes) == ("rack-a", MB)


def test_without_topic_ids_the_last_version_with_names_is_used():
    request = Bench({P: (1, 5)}, ids={"t": None}).ask()
    assert request.at_most == 12
    assert request.build(12).topics[0].topic == "t"
    assert Bench({P: (1, 5)}).ask().at_most is None


def test_a_leaderless_partition_waits_for_news():
    bench = Bench({P: (None, 5)})
    poll = bench.poll()
    assert poll.requests == ()
    assert poll.wait == pytest.approx(0.1)
    assert bench.wants_metadata
    assert bench.poll().wait == pytest.approx(0.1)
    assert bench.poll(0.1).wait == pytest.approx(0.2)


@pytest.mark.parametrize("phase", [Phase.AWAIT_RESET, Phase.AWAIT_VALIDATION, Phase.STOPPED])
def test_only_what_is_being_fetched_is_asked_for(phase):
    bench = Bench({P: (1, 5)})
    bench.cursor().phase = phase
    assert bench.poll() == Poll((), NEVER)


# --- answers ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(12, 19))
def test_records_of_every_version_move_the_cursor_before_anything_is_decoded(version):
    bench = Bench()
    bench.answer(bench.ask(), {P: {"records": _records(3)}, Q: {"records": b""}}, version)
    assert (bench.cursor().offset, bench.cursor().epoch) == (13, 5)
    assert bench.cursor(Q).offset == 10
    (task,) = bench.tasks
    (taker,) = task.takers
    assert (taker.slot.partition, taker.slot.offset, task.table.next_offset, taker.again) == (P, 10, 13, False)
    assert _wanted(bench.ask(), version) == {0: 13, 1: 10}


def test_a_full_request_then_only_what_changed():
    bench = Bench()
    request = bench.ask()
    assert request.build(17).session_epoch == 0
    bench.answer(request, {P: {"records": _records(2)}}, session=77)
    request = bench.ask()
    entity = request.build(17)
    assert (entity.session_id, entity.session_epoch) == (77, 1)
    assert _wanted(request) == {0: 12}
    bench.answer(request, {}, session=77)
    bench.cursor(Q).paused = True
    entity = bench.ask().build(17)
    assert entity.session_epoch == 2
    assert [t.partitions for t in entity.forgotten_topics_data] == [(1,)]


@pytest.mark.parametrize("code", [70, 71, 106])
def test_an_error_of_the_session_starts_a_new_one(code):
    bench = Bench()
    bench.answer(bench.ask(), {}, session=77)
    bench.answer(bench.ask(), {}, code=code)
    assert bench.poll().requests == ()
    request = bench.ask(0.1)
    assert (request.build(17).session_id, request.build(17).session_epoch) == (0, 0)
    assert _wanted(request) == {0: 10, 1: 10}
    assert bench.wants_metadata == (code == 106), "only the third is about topic ids"


def test_what_the_broker_itself_cannot_read_counts_as_corrupt():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"code": 2}})
    ((what, partition, error),) = bench.errors
    assert (what, partition) == ("corrupt", P)
    assert (error.offset, error.topic, error.broker) == (10, "t", "broker")


def test_partitions_asked_for_longest_ago_go_first():
    bench = Bench({P: (1, 5), Q: (1, 5)})
    bench.cursor(Q).paused = True
    bench.answer(bench.ask(), {P: {"records": _records(3)}})
    bench.cursor(Q).paused = False
    assert list(_wanted(bench.ask())) == [1, 0]


def test_another_error_of_the_whole_response_asks_for_metadata_too():
    bench = Bench()
    bench.answer(bench.ask(), {}, code=-1)
    assert bench.wants_metadata
    assert bench.counts.total("fetch.refused") == 1
    assert bench.ask(0.1).build(17).session_epoch == 0


def test_a_lost_connection_starts_over_after_a_while():
    bench = Bench()
    bench.answer(bench.ask(), {}, session=77)
    bench.ask().on_failure(NetworkError("lost"), bench.now)
    assert bench.wants_metadata
    assert bench.poll().requests == ()
    assert bench.ask(0.1).build(17).session_epoch == 0


def test_a_partition_that_was_not_asked_for_is_not_believed():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {TopicPartition("t", 9): {"records": _records(3)}})
    bench.answer(bench.ask(), {P: {"records": _records(3)}}, ids={"t": UUID(int=5)})
    assert bench.tasks == []
    assert bench.cursor().offset == 10
    assert bench.counts.total("fetch.unasked_partition") == 2


def test_a_stale_generation_is_dropped():
    bench = Bench({P: (1, 5)})
    request = bench.ask()
    bench.cursors.put(Cursor(P, 2, At(Offset(50))))
    bench.answer(request, {P: {"records": _records(3)}})
    assert bench.tasks == []
    assert bench.cursor().offset == 50
    assert _wanted(bench.ask()) == {0: 50}


def test_a_cursor_that_moved_meanwhile_is_left_where_it_is():
    bench = Bench({P: (1, 5)})
    request = bench.ask()
    bench.cursor().lost(Lookup(EARLIEST, "test"))
    bench.answer(request, {P: {"records": _records(3)}})
    assert bench.tasks == []
    assert bench.cursor().phase is Phase.AWAIT_RESET
    assert not bench.cursor().in_flight


def test_an_answer_from_an_offset_that_was_given_up_is_dropped():
    bench = Bench({P: (1, 5)})
    request = bench.ask()
    bench.cursor().rewound(Offset(8), bench.cursor().refetch_epoch)
    bench.answer(request, {P: {"records": _records(3)}})
    assert bench.tasks == []
    assert _wanted(bench.ask()) == {0: 8}


def test_a_frame_that_breaks_the_protocol_changes_nothing():
    bench = Bench({P: (1, 5)})
    request = bench.ask()
    with pytest.raises(FrameError):
        request.on_response(RawResponse(as_array(b"\0\0\0\3" + b"\xff" * 30), 17, 3, NodeId(1), "b"), bench.now)
    request.on_failure(FrameError("as the delegate does"), bench.now)
    assert bench.cursor().offset == 10
    assert _wanted(bench.ask(0.1)) == {0: 10}


def test_throttling_is_reported_to_the_connection():
    bench = Bench()
    bench.answer(bench.ask(), {}, throttle_ms=250)
    assert bench.throttled == [250]


# --- errors of a partition -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [3, 5, 6, 9, 56, 74, 75, 78, 100, 103])
def test_what_passes_is_asked_again_later_with_fresh_metadata(code):
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"code": code}})
    assert bench.wants_metadata
    assert bench.poll().wait == pytest.approx(0.1)
    assert _wanted(bench.ask(0.1)) == {0: 10}
    assert bench.errors == []


@pytest.mark.parametrize("code", [7, -1])
def test_what_passes_without_metadata(code):
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"code": code}})
    assert not bench.wants_metadata
    assert bench.poll().requests == ()
    assert bench.poll(0.1).requests


@pytest.mark.parametrize("code", [17, 29, 43, 76])
def test_what_does_not_pass_stops_the_partition(code):
    bench = Bench()
    bench.answer(bench.ask(), {P: {"code": code}, Q: {"records": _records(1)}})
    ((what, partition, error),) = bench.errors
    assert (what, partition) == ("stopped", P)
    assert isinstance(error, BrokerError)
    assert error.code == code
    assert bench.cursor(Q).offset == 11


def test_out_of_range_is_reported():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"code": 1}})
    assert bench.errors == [("out of range", P)]


def test_out_of_range_is_not_believed_while_the_offset_is_a_guess():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"records": _records(3)}})
    bench.answer(bench.ask(), {P: {"code": 1}})
    assert bench.errors == []
    assert bench.poll().requests == ()
    bench.buffer.discard(bench.tasks[0].takers[0].slot)
    bench.answer(bench.ask(0.1), {P: {"code": 1}})
    assert bench.errors == []


def test_divergence_is_reported():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"diverging": (4, 8)}})
    assert bench.errors == [("diverged", P, 4, 8)]


def test_no_version_in_common_stops_the_partitions_loudly():
    bench = Bench()
    bench.ask().on_failure(UnsupportedVersion("too old"), bench.now)
    assert [(what, p) for what, p, _ in bench.errors] == [("stopped", P), ("stopped", Q)]


def test_a_refused_login_is_reported_and_retried_later():
    bench = Bench({P: (1, 5)})
    error = SaslError("no")
    bench.ask().on_failure(error, bench.now)
    assert bench.errors == [("refused", error)]
    assert bench.poll().requests == ()
    assert bench.poll(0.1).requests


# --- hints -----------------------------------------------------------------------------------------------------------


def test_a_leader_hint_is_followed():
    bench = Bench({P: (1, 5)})
    new = Node(NodeId(8), "eight", 9092)
    bench.answer(bench.ask(), {P: {"code": 6, "leader": (8, 6)}}, endpoints=[new])
    assert bench.metadata.cluster.leadership(P) == Leadership(NodeId(8), LeaderEpoch(6))
    assert bench.metadata.cluster.nodes[NodeId(8)] == new
    assert bench.ask(0.1).node == 8


def test_an_old_leader_hint_is_not():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"code": 6, "leader": (2, 4)}})
    assert bench.ask(0.1).node == 1


def test_the_preferred_replica_is_read_until_its_time_is_over():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"replica": 2}})
    request = bench.ask()
    assert request.node == 2
    assert request.build(17).topics[0].partitions[0].current_leader_epoch == -1
    bench.answer(request, {P: {"records": _records(1)}})
    assert bench.ask(299.0).node == 2
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"replica": 2}})
    assert bench.ask(300.0).node == 1


def test_a_replica_that_is_out_of_range_is_left_for_the_leader():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"replica": 2}})
    bench.answer(bench.ask(), {P: {"code": 1}})
    assert bench.errors == []
    request = bench.ask()
    assert request.node == 1
    bench.answer(request, {P: {"code": 1}})
    assert bench.errors == [("out of range", P)]


@pytest.mark.parametrize("error", [NetworkError("lost"), None])
def test_a_replica_in_trouble_is_left_for_the_leader(error):
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"replica": 2}})
    if error is None:
        bench.answer(bench.ask(), {P: {"code": 6}})
    else:
        bench.ask().on_failure(error, bench.now)
    assert bench.ask(0.1).node == 1


def test_a_replica_that_nobody_knows_does_not_make_a_circle():
    """The leader sends no records but the name again and again; asking at once would be a storm."""
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"replica": 44}})
    assert bench.wants_metadata
    assert bench.poll().requests == ()
    assert bench.ask(0.1).node == 1


# --- bytes that cannot be --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ({"records": _records(3, offset=14), "high": 12}, CorruptBatch),
        ({"records": _records(3, offset=2)}, CorruptBatch),
        ({"records": _records(3, magic=1)}, UnsupportedBatch),
        ({"records": _records(3, length=7)}, CorruptBatch),
        ({"records": _records(3)[:40]}, CorruptBatch),
    ],
    ids=["a leap beyond the log's end", "before the offset", "old format", "length", "first batch cut"],
)
def test_batches_that_cannot_be_leave_the_cursor_where_it_is(answers, kind):
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: answers})
    ((what, partition, error),) = bench.errors
    assert (what, partition) == ("corrupt", P)
    assert type(error) is kind
    assert (error.topic, error.partition, error.broker) == ("t", 0, "broker")
    assert bench.cursor().offset == 10
    assert bench.tasks == []
    assert bench.buffer.charged_bytes == 0


def test_what_follows_may_lie_behind_the_end_that_the_broker_had_looked_up():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"records": _records(3) + _records(2, offset=13), "high": 10}})
    assert bench.errors == []
    assert bench.cursor().offset == 15


def test_before_a_leap_beyond_the_logs_end_all_is_read():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"records": _records(3) + _records(2, offset=1 << 40), "high": 14}})
    assert bench.errors == []
    assert bench.cursor().offset == 13
    (task,) = bench.tasks
    assert "the log ends at 14" in str(task.table.error)


def test_nothing_is_judged_by_an_offset_that_is_a_guess():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"records": _records(3)}})
    bench.answer(bench.ask(), {P: {"records": _records(3, offset=10, magic=1)}})
    assert bench.errors == []
    assert bench.poll().requests == ()
    assert _wanted(bench.ask(0.1)) == {0: 13}


def test_a_partial_batch_at_the_end_is_normal():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"records": _records(3) + _records(3, offset=13)[:30]}})
    assert bench.cursor().offset == 13
    assert bench.errors == []


def test_a_fetch_may_land_inside_a_batch():
    bench = Bench({P: (1, 5)})
    bench.answer(bench.ask(), {P: {"records": _records(5, offset=8)}})
    assert bench.cursor().offset == 13
    assert bench.tasks[0].takers[0].slot.offset == 10


def test_decoders_know_when_it_is_the_second_try():
    bench = Bench({P: (1, 5)})
    bench.cursor().refetches, bench.cursor().refetch_at = 1, bench.cursor().offset
    bench.answer(bench.ask(), {P: {"records": _records(1), "high": 12}})
    bench.answer(bench.ask(), {P: {"records": _records(1, 11), "high": 12}})
    assert [task.takers[0].again for task in bench.tasks] == [True, False], "not what lies behind the batch in question"


# --- memory ----------------------------------------------------------------------------------------------------------


def test_a_request_asks_for_no_more_than_there_is_room():
    bench = Bench(limit=1_500_000)
    assert bench.ask().build(17).max_bytes == 1_500_000


def test_what_is_under_way_counts_as_taken():
    bench = Bench({P: (1, 5), Q: (2, 5)}, limit=MB + 10)
    assert len(bench.poll().requests) == 1


def test_without_room_nothing_is_asked_until_something_is_taken():
    bench = Bench({P: (1, 5)}, limit=100)
    bench.answer(bench.ask(), {P: {"records": _records(3)}})
    assert bench.poll() == Poll((), NEVER)
    bench.buffer.discard(bench.tasks[0].takers[0].slot)
    assert bench.poll().requests


def test_a_paused_partition_makes_room_and_is_fetched_again():
    bench = Bench(limit=100)
    bench.answer(bench.ask(), {P: {"records": _records(3)}})
    assert bench.poll().requests == ()
    bench.cursor().paused = True
    assert _wanted(bench.ask()) == {1: 10}
    assert (bench.cursor().offset, bench.cursor().refetch_epoch) == (10, 1)
    assert bench.buffer.charged_bytes == 0
