"""What a consumer's network side decides when a partition is in trouble."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any
from uuid import UUID

import pytest

from batch_builder import Batch, rows
from multilane.client.events import Assign, BackgroundEvent, EventQueue, FindOffsets, Seek, SetPaused
from multilane.client.fetch.backend import Backend, BackendContext
from multilane.client.fetch.buffer import Failed, FetchBuffer, Moved
from multilane.client.fetch.cursor import At, AtCommitted, Cursor, Lookup, Phase, StartPosition
from multilane.client.fetch.decoder import FrameJob
from multilane.client.fetch.fetch_requests import FetchContext
from multilane.client.fetch.shared import SharedFetching
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import RawResponse, UnsentRequest
from multilane.config.consumer import parse_consumer
from multilane.errors import (
    BrokerError,
    ClientClosed,
    CorruptBatch,
    LogTruncated,
    OffsetOutOfRange,
    SaslError,
    UnsupportedBatch,
)
from multilane.metrics.observer import Counts
from multilane.types import LeaderEpoch, NodeId, Offset, TopicPartition
from multilane.wire.compose import EARLIEST, LATEST
from multilane.wire.messages import ApiKey
from multilane.wire.records.block import Block
from multilane.wire.records.decode import DecodeOptions, load_kernels
from response_builder import (
    as_array,
    cluster_of,
    epoch_response,
    fetch_response,
    frame_of,
    list_offsets_response,
    metadata_response,
)

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
WALL = 1_700_000_000.0


class _Quiet:
    def set(self) -> None:
        return None


class Stage:
    """A backend with everything around it in the test's hands."""

    def __init__(
        self,
        *partitions: TopicPartition,
        offset: int = 10,
        epoch: int = 3,
        group: Any = None,
        **properties: object,
    ) -> None:
        load_kernels()
        self.now = 1.0
        ours = {"bootstrap.servers": "broker:9092", "corrupt.batch.refetches": 2, "fetch.connections": 1}
        config = parse_consumer({**ours, **properties})
        self.metadata = MetadataManager(MetadataPolicy(300.0, RequestBackoff(0.1, 1.0), 300.0), MetadataListeners())
        self.buffer = FetchBuffer(1 << 27, on_ready=lambda: None, on_room=lambda: None)
        self.events: list[Any] = []
        self.jobs: list[Callable[[], None]] = []
        self.background: EventQueue[BackgroundEvent] = EventQueue(_Quiet())
        self.counts = Counts()
        self.can_decode = True
        self.fetching = SharedFetching(
            self.metadata, FetchContext(self._decode, lambda _: None, self.counts, lambda: self.can_decode)
        )
        context = BackendContext(
            self.metadata, self.fetching, lambda _, event: self.events.append(event), lambda: WALL, self.counts
        )
        self.backend = Backend(config, context, self.buffer, self.background, "fetch-1", group)
        self.lead(3)
        self.generation = dict.fromkeys(partitions or (P,), 1)
        self.buffer.expect(self.generation)
        start = At(Offset(offset), LeaderEpoch(epoch))
        starts: dict[TopicPartition, tuple[int, StartPosition]] = {p: (1, start) for p in self.generation}
        self.backend.apply(Assign(starts))

    def _decode(self, frame: Any, tasks: list[Any], _policy: Any) -> None:
        self.jobs += [FrameJob(frame, [t], DecodeOptions()) for t in tasks]

    def lead(self, epoch: int, *, node: int = 1, topic_id: UUID | None = None) -> None:
        ids = None if topic_id is None else {"t": topic_id}
        self.metadata.cluster = cluster_of({P: (node, epoch), Q: (node, epoch)}, ids=ids)

    def cursor(self, partition: TopicPartition = P) -> Cursor:
        cursor = self.backend._cursors.get(partition)
        assert cursor is not None
        return cursor

    def ask(self, after: float = 5.0) -> list[UnsentRequest]:
        self.now += after
        return [*self.backend.poll(self.now).requests, *self.fetching.poll(self.now).requests]

    def request(self, api: ApiKey) -> UnsentRequest:
        (request,) = self.ask()
        assert request.api is api
        return request

    def fetch(self, answers: Mapping[str, Any], partition: TopicPartition = P) -> None:
        """One round: ask, answer, decode, and let the network thread hear of it."""
        self.answer(self.request(ApiKey.FETCH), {partition: answers})
        self.settle()

    def answer(self, request: UnsentRequest, answers: Mapping[TopicPartition, Mapping[str, Any]]) -> None:
        frame = as_array(frame_of(fetch_response(17, answers), 3))
        request.on_response(RawResponse(frame, 17, 3, NodeId(1), "broker 1"), self.now)

    def settle(self) -> None:
        while self.jobs:
            self.jobs.pop(0)()
        self.hear()

    def hear(self) -> None:
        while self.events:
            self.backend.apply(self.events.pop(0))

    def validate(self, epoch: int, end: int, code: int = 0) -> None:
        request = self.request(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        request.on_response(epoch_response(4, {P: (code, epoch, end)}), self.now)

    def place(self, offset: int) -> UnsentRequest:
        request = self.request(ApiKey.LIST_OFFSETS)
        request.on_response(list_offsets_response(10, {P: (0, -1, offset)}), self.now)
        return request

    def take(self) -> list[Any]:
        return self.buffer.take(None, ())


def _batch(offset: int = 10, count: int = 2, **more: Any) -> bytes:
    return Batch(rows(count, start=offset), offset, leader_epoch=3, **more).build()


def _timestamp(request: UnsentRequest) -> int:
    return int(request.build(10).topics[0].partitions[0].timestamp)


# --- out of range ----------------------------------------------------------------------------------------------------


def test_out_of_range_without_a_policy_stops_and_tells_the_range():
    stage = Stage()
    stage.fetch({"code": 1, "start": 20, "high": 90})
    (failed,) = stage.take()
    assert isinstance(failed.error, OffsetOutOfRange)
    assert (failed.error.topic, failed.error.partition, failed.error.offset) == ("t", 0, 10)
    assert "begins at 20 and ends at 90" in str(failed.error)
    assert stage.cursor().phase is Phase.STOPPED
    assert stage.ask() == []


@pytest.mark.parametrize(
    ("policy", "timestamp"),
    [("earliest", EARLIEST), ("latest", LATEST), ("by_duration:PT1H", int((WALL - 3_600) * 1_000))],
)
def test_out_of_range_with_a_policy_moves(policy, timestamp):
    stage = Stage(**{"auto.offset.reset": policy})
    stage.fetch({"code": 1})
    assert stage.cursor().phase is Phase.AWAIT_RESET
    assert _timestamp(stage.place(70)) == timestamp
    epoch = 4 if policy == "latest" else -1  # at the end it is known which leader said so
    assert stage.take() == [Moved(P, Offset(70), LeaderEpoch(epoch))]
    assert stage.cursor().offset == 70
    assert stage.counts.total("offset.out_of_range") == 1


@pytest.mark.parametrize("policy", ["earliest", "latest", "by_duration:PT1H"])
@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [(20, 90, "10 offsets from 10 on were deleted before they were read"), (0, 5, "ends at 5)")],
)
def test_an_app_whose_position_is_lost_skips_nothing(policy, begin, end, said, caplog):
    """With `latest` it went on at the end of the log, and skipped what it had not handled."""
    stage = Stage(**{"auto.offset.reset": policy, "lost.position.reset": "earliest"})
    stage.fetch({"code": 1, "start": begin, "high": end})
    assert _timestamp(stage.place(begin)) == EARLIEST
    assert said in caplog.text
    assert "continuing where the log begins" in caplog.text


def test_an_app_whose_log_was_truncated_skips_nothing(caplog):
    stage = Stage(**{"auto.offset.reset": "latest", "lost.position.reset": "earliest"})
    stage.lead(4)
    stage.validate(-1, -1)  # nobody knows where the histories part
    assert _timestamp(stage.place(0)) == EARLIEST
    assert "continuing where the log begins" in caplog.text


def test_an_app_without_a_reset_policy_stops_all_the_same():
    stage = Stage(**{"auto.offset.reset": "none", "lost.position.reset": "earliest"})
    stage.fetch({"code": 1, "start": 20, "high": 90})
    (failed,) = stage.take()
    assert isinstance(failed.error, OffsetOutOfRange)


def test_resets_that_lead_nowhere_slow_down_and_do_not_pile_up():
    stage = Stage(**{"auto.offset.reset": "earliest"})
    stage.fetch({"code": 1})
    stage.place(70)
    for _ in range(3):
        (request,) = stage.ask(0.0) or stage.ask()
        stage.answer(request, {P: {"code": 1}})
        stage.place(70)
        assert stage.ask(0.0) == [], "not at once: it was there before"
    assert stage.take() == [Moved(P, Offset(70), LeaderEpoch(-1))]
    stage.fetch({"records": _batch(70)})
    stage.fetch({"code": 1})
    stage.place(80)
    assert [r.api for r in stage.ask(0.0)] == [ApiKey.FETCH], "it has advanced in between"


def test_a_move_does_not_overtake_records():
    stage = Stage(**{"auto.offset.reset": "earliest"})
    for offset in (20, 30):
        stage.fetch({"code": 1})
        stage.place(offset)
        stage.fetch({"records": _batch(offset)})
    moved, first, again, second = stage.take()
    assert (moved.offset, first.first_offset, again.offset, second.first_offset) == (20, 20, 30, 30)


def test_records_that_came_before_are_handed_out_before_the_failure():
    stage = Stage()
    stage.fetch({"records": _batch()})
    stage.fetch({"code": 1})
    block, failed = stage.take()
    assert isinstance(block, Block)
    assert isinstance(failed, Failed)


# --- truncation ------------------------------------------------------------------------------------------------------


def test_a_cut_log_without_a_policy_stops():
    stage = Stage()
    stage.lead(4)
    stage.validate(epoch=2, end=6)
    (failed,) = stage.take()
    assert isinstance(failed.error, LogTruncated)
    assert (failed.error.offset, failed.error.diverges_at) == (10, 6)
    assert stage.cursor().phase is Phase.STOPPED


def test_a_cut_log_with_a_policy_goes_back_to_the_point_of_divergence_and_asks_again():
    stage = Stage(**{"auto.offset.reset": "latest"})
    stage.lead(4)
    stage.validate(epoch=2, end=6)
    assert stage.take() == [Moved(P, Offset(6), LeaderEpoch(2))]
    assert (stage.cursor().offset, stage.cursor().epoch) == (6, 2)
    stage.validate(epoch=2, end=6)
    assert stage.cursor().phase is Phase.FETCHING
    request = stage.request(ApiKey.FETCH)
    assert request.build(17).topics[0].partitions[0].fetch_offset == 6


@pytest.mark.parametrize(("policy", "phase"), [("none", Phase.STOPPED), ("earliest", Phase.AWAIT_RESET)])
def test_a_leader_that_knows_nothing_of_our_epoch(policy, phase):
    stage = Stage(**{"auto.offset.reset": policy})
    stage.lead(4)
    stage.validate(epoch=-1, end=-1)
    assert stage.cursor().phase is phase
    if phase is Phase.STOPPED:
        assert stage.take()[0].error.diverges_at is None


def test_a_cut_log_is_not_believed_while_the_offset_is_a_guess():
    stage = Stage()
    stage.answer(stage.request(ApiKey.FETCH), {P: {"records": _batch(10, crc=1)}})
    stage.lead(4)
    stage.validate(epoch=3, end=11)
    assert stage.cursor().phase is Phase.AWAIT_VALIDATION
    assert stage.ask(0.0) == [], "the decoder needs a moment"
    stage.settle()
    assert stage.take() == []
    stage.validate(epoch=3, end=11)
    assert (stage.cursor().phase, stage.cursor().offset) == (Phase.FETCHING, 10)


def test_divergence_in_a_fetch_is_a_cut_log_too():
    stage = Stage()
    stage.fetch({"diverging": (2, 7)})
    assert stage.take()[0].error.diverges_at == 7


def test_an_epoch_given_to_seek_is_validated():
    stage = Stage()
    stage.fetch({"records": _batch()})
    stage.buffer.expect({P: 2})
    stage.backend.apply(Seek(P, 2, At(Offset(11), LeaderEpoch(1))))
    stage.validate(epoch=1, end=8)
    assert isinstance(stage.take()[0].error, LogTruncated)


# --- corrupt batches -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", [{"crc": 1}, {"length": 20}], ids=["found by decoding", "found by scanning"])
def test_a_corrupt_batch_is_fetched_again_and_then_stops_in_front_of_it(fault):
    stage = Stage()
    for attempt in range(3):
        request = stage.request(ApiKey.FETCH)
        assert request.build(17).topics[0].partitions[0].fetch_offset == 10
        assert stage.take() == [], f"attempt {attempt}"
        stage.answer(request, {P: {"records": _batch(**fault)}})
        stage.settle()
    (failed,) = stage.take()
    assert isinstance(failed.error, CorruptBatch)
    assert (failed.error.offset, failed.error.broker) == (10, "broker 1")
    assert stage.cursor().offset == 10
    assert stage.ask() == []
    assert stage.buffer.charged_bytes == 0
    assert stage.counts.total("batch.unreadable") == 3


def test_a_batch_that_is_fine_the_second_time_starts_the_count_anew():
    stage = Stage()
    for _ in range(5):
        offset = stage.cursor().offset
        stage.fetch({"records": _batch(offset, crc=1)})
        stage.fetch({"records": _batch(offset)})
        assert stage.cursor().refetches == 0
    assert [b.offsets.tolist() for b in stage.take()] == [[n, n + 1] for n in range(10, 20, 2)]


def test_good_batches_before_a_bad_one_are_handed_out():
    stage = Stage()
    stage.fetch({"records": _batch(10) + _batch(12, crc=1)})
    (block,) = stage.take()
    assert (block.offsets.tolist(), block.next_offset) == ([10, 11], 12)
    assert stage.cursor().offset == 12
    stage.fetch({"records": _batch(12)})
    assert [b.offsets.tolist() for b in stage.take()] == [[12, 13]]


def test_a_format_that_we_do_not_read_stops_at_once():
    stage = Stage()
    stage.fetch({"records": _batch(magic=1)})
    (failed,) = stage.take()
    assert isinstance(failed.error, UnsupportedBatch)


def test_two_bad_frames_decoded_in_the_wrong_order_leave_no_hole():
    stage = Stage()
    stage.answer(stage.request(ApiKey.FETCH), {P: {"records": _batch(10, crc=1)}})
    stage.answer(stage.request(ApiKey.FETCH), {P: {"records": _batch(12, crc=1)}})
    first, second = stage.jobs
    stage.jobs.clear()
    second()
    stage.hear()
    assert stage.cursor().offset == 12
    stage.answer(stage.request(ApiKey.FETCH), {P: {"records": _batch(12)}})
    first()
    stage.settle()
    assert stage.take() == []
    assert stage.cursor().offset == 10
    stage.fetch({"records": _batch(10)})
    stage.fetch({"records": _batch(12)})
    assert [b.offsets.tolist() for b in stage.take()] == [[10, 11], [12, 13]]


@pytest.mark.parametrize("backwards", [False, True])
def test_two_words_about_bad_batches_in_either_order(backwards):
    stage = Stage()
    stage.answer(stage.request(ApiKey.FETCH), {P: {"records": _batch(10, crc=1)}})
    stage.answer(stage.request(ApiKey.FETCH), {P: {"records": _batch(12, crc=1)}})
    while stage.jobs:
        stage.jobs.pop()()
    assert len(stage.events) == 2
    if backwards:
        stage.events.reverse()
    stage.hear()
    assert (stage.cursor().offset, stage.cursor().refetch_epoch) == (10, 2)
    stage.fetch({"records": _batch(10)})
    assert [b.offsets.tolist() for b in stage.take()] == [[10, 11]]


def test_a_bad_batch_and_a_new_leader_at_once():
    stage = Stage()
    stage.answer(stage.request(ApiKey.FETCH), {P: {"records": _batch(10, crc=1)}})
    stage.lead(4)
    request = stage.request(ApiKey.OFFSET_FOR_LEADER_EPOCH)
    stage.settle()
    assert (stage.cursor().phase, stage.cursor().offset) == (Phase.AWAIT_VALIDATION, 10)
    request.on_response(epoch_response(4, {P: (0, 3, 100)}), stage.now)
    stage.fetch({"records": _batch(10)})
    assert [b.offsets.tolist() for b in stage.take()] == [[10, 11]]


def test_a_failure_behind_a_bad_batch_is_not_lost_with_it():
    stage = Stage()
    stage.answer(stage.request(ApiKey.FETCH), {P: {"records": _batch(10, crc=1)}})
    stage.answer(stage.request(ApiKey.FETCH), {P: {"code": 29}})
    assert stage.cursor().phase is Phase.STOPPED
    stage.settle()
    (failed,) = stage.take()
    assert isinstance(failed.error, CorruptBatch)


def test_the_word_about_a_bad_batch_after_a_seek_changes_nothing():
    stage = Stage()
    stage.answer(stage.request(ApiKey.FETCH), {P: {"records": _batch(10, crc=1)}})
    stage.buffer.expect({P: 2})
    stage.backend.apply(Seek(P, 2, At(Offset(50))))
    stage.settle()
    assert (stage.cursor().offset, stage.cursor().refetches) == (50, 0)


# --- topics made anew ------------------------------------------------------------------------------------------------


def test_a_topic_made_anew_is_read_from_its_beginning():
    stage = Stage()
    stage.fetch({"records": _batch()})
    stage.lead(0, topic_id=UUID(int=7))
    stage.backend.on_cluster(stage.metadata.cluster)
    assert stage.cursor().phase is Phase.AWAIT_RESET
    assert _timestamp(stage.place(0)) == EARLIEST
    request = stage.request(ApiKey.FETCH)
    topic = request.build(17).topics[0]
    assert (topic.topic_id, topic.partitions[0].fetch_offset) == (UUID(int=7), 0)
    assert stage.counts.total("topic.recreated") == 1


def test_an_answer_of_the_old_topic_that_is_still_under_way_is_dropped():
    stage = Stage()
    request = stage.request(ApiKey.FETCH)
    stage.lead(0, topic_id=UUID(int=7))
    stage.backend.on_cluster(stage.metadata.cluster)
    stage.answer(request, {P: {"records": _batch()}})
    assert stage.jobs == []
    assert stage.cursor().phase is Phase.AWAIT_RESET


def test_the_same_topic_id_is_no_news():
    stage = Stage()
    stage.fetch({"records": _batch()})
    stage.backend.on_cluster(stage.metadata.cluster)
    assert stage.cursor().phase is Phase.FETCHING


# --- the rest --------------------------------------------------------------------------------------------------------


def test_assignments_keep_what_they_know_and_interest_follows():
    stage = Stage(P, Q)
    stage.fetch({"records": _batch()})
    assert _interest(stage) == ["t"]
    other = TopicPartition("u", 0)
    starts: dict[TopicPartition, tuple[int, StartPosition]] = {
        P: (1, At(Offset(10))),
        other: (2, Lookup(EARLIEST, "new")),
    }
    stage.backend.apply(Assign(starts))
    assert stage.cursor().offset == 12, "the same generation goes on"
    assert stage.backend._cursors.get(Q) is None
    assert _interest(stage) == ["t", "u"]
    stage.backend.apply(Assign({}))
    assert _interest(stage) == []


def _interest(stage: Stage) -> list[str]:
    return sorted(stage.metadata._interest)


def test_a_paused_partition_is_not_fetched_and_stays_paused_through_a_seek():
    stage = Stage()
    stage.backend.apply(SetPaused(frozenset({P, Q}), True))
    assert stage.ask() == []
    stage.backend.apply(Seek(P, 2, At(Offset(3))))
    assert stage.ask() == []
    stage.backend.apply(SetPaused(frozenset({P}), False))
    assert len(stage.ask()) == 1


def test_a_seek_of_something_not_assigned_is_ignored():
    stage = Stage()
    stage.backend.apply(Seek(Q, 9, At(Offset(3))))
    assert stage.backend._cursors.get(Q) is None


class Group:
    """Which partitions wait to hear where they begin."""

    def __init__(self) -> None:
        self.wanted: list[TopicPartition] = []

    def want(self, partitions: Any, _found: Any, _refused: Any) -> None:
        self.wanted += partitions

    def unwant(self, partitions: Any) -> None:
        for partition in partitions:
            self.wanted.remove(partition)


def _go_away(stage: Stage) -> None:
    stage.backend.apply(Assign({}))


def _seek_away(stage: Stage) -> None:
    stage.backend.apply(Seek(P, 3, At(Offset(5))))


def _begin_anew(stage: Stage) -> None:
    stage.backend.apply(Assign({P: (3, AtCommitted())}))


@pytest.mark.parametrize(
    ("change", "left"),
    [(_go_away, []), (_seek_away, []), (_begin_anew, [P]), (lambda stage: stage.backend.close(), [])],
    ids=["given up", "sought", "assigned anew", "closed"],
)
def test_what_does_not_wait_for_its_group_any_more_is_not_asked_for(change, left):
    group = Group()
    stage = Stage(group=group)
    stage.backend.apply(Assign({P: (2, AtCommitted())}))
    assert group.wanted == [P]
    change(stage)
    assert group.wanted == left


@pytest.mark.parametrize("allowed", [False, True])
def test_who_assigns_a_topic_says_whether_it_may_be_created(allowed):
    stage = Stage(**{"allow.auto.create.topics": allowed})
    (request,) = stage.metadata.poll(1.0).requests
    request.on_response(metadata_response(12, [], {"t": {}}, codes={"t": 3}), 1.0)
    (request,) = stage.metadata.poll(9.0).requests
    assert request.build(12).allow_auto_topic_creation is allowed
    stage.backend.apply(Assign({}))
    assert _interest(stage) == []


def test_nothing_is_fetched_before_it_can_be_decoded():
    stage = Stage()
    assert stage.backend.poll(1.0).requests == ()
    stage.can_decode = False
    assert stage.fetching.poll(1.0).requests == ()
    stage.can_decode = True
    assert stage.fetching.poll(1.0).requests


def test_look_ups_are_answered_or_refused_and_their_interest_ends():
    stage = Stage()
    found: Future[Any] = Future()
    stage.backend.apply(FindOffsets({Q: EARLIEST}, 100.0, found))
    requests = {r.api: r for r in stage.ask()}
    requests[ApiKey.LIST_OFFSETS].on_response(list_offsets_response(10, {Q: (0, -1, 4)}), stage.now)
    assert found.result(0)[Q].offset == 4
    left: Future[Any] = Future()
    stage.backend.apply(FindOffsets({TopicPartition("u", 0): EARLIEST}, 100.0, left))
    assert _interest(stage) == ["t", "u"]
    stage.backend.close()
    assert isinstance(left.exception(0), ClientClosed)
    assert _interest(stage) == []
    assert stage.ask() == []


def test_errors_of_topics_reach_only_those_who_read_them():
    stage = Stage()
    stage.backend.topic_failed("u", BrokerError(29))
    assert not stage.background
    stage.backend.topic_failed("t", BrokerError(29))
    assert stage.background.pop().error.code == 29


def test_a_refused_login_of_a_fetch_is_raised():
    stage = Stage()
    stage.request(ApiKey.FETCH).on_failure(SaslError("no"), stage.now)
    event = stage.background.pop()
    assert event is not None
    assert isinstance(event.error, SaslError)
    assert stage.cursor().phase is Phase.FETCHING
