"""The whole network side of several consumers against a log: whatever is late, broken or moved, each reads the log.

The machine plays broker, decoders and applications at once, in any order. Consumers share the fetching: one request
carries what all want. Batches arrive cut, with broken checksums, broken headers or lies about their last offset;
connections answer and decoders finish in any order; leaders change; answers are lost; partitions are paused, sought and
evicted; consumers come and go. What comes out of each must be the log: in order, nothing twice, nothing left out, and
every byte of memory given back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import count
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batch_builder import Batch, Rec
from multilane.client.agenda import Agenda
from multilane.client.events import Assign, EventQueue, Seek, SetPaused
from multilane.client.fetch.backend import Backend, BackendContext
from multilane.client.fetch.buffer import Failed, FetchBuffer, Moved
from multilane.client.fetch.cursor import At
from multilane.client.fetch.decoder import FrameJob
from multilane.client.fetch.fetch_connections import MAX_CONNECTIONS
from multilane.client.fetch.fetch_requests import FetchContext
from multilane.client.fetch.shared import SharedFetching
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import CONTROL, RawResponse, UnsentRequest, then
from multilane.config.consumer import parse_consumer
from multilane.errors import NetworkError, RecordBatchError
from multilane.metrics.observer import NO_OBSERVER
from multilane.types import NO_EPOCH, NodeId, Offset, TopicPartition
from multilane.wire.messages import ApiKey
from multilane.wire.records.decode import DecodeOptions, load_kernels
from response_builder import as_array, cluster_of, epoch_response, fetch_response, frame_of

PARTITIONS = (TopicPartition("t", 0), TopicPartition("t", 1))
LOG_END = 40
FETCH_VERSION, EPOCH_VERSION = 17, 4
TOLD, HEADER, CHECKSUM, LAST_OFFSET = "true", "header", "checksum", "last offset"
FAULTS = st.sampled_from(
    [[], [CHECKSUM], [TOLD, CHECKSUM], [LAST_OFFSET], [TOLD, LAST_OFFSET], [HEADER], [TOLD, HEADER]]
)


def _value(partition: TopicPartition, offset: int) -> bytes:
    return b"%s:%d" % (str(partition).encode(), offset)


def _log(partition: TopicPartition) -> list[Batch]:
    """Batches of 1 to 4 records, with an offset missing in every batch of 4 (as compaction leaves it)."""
    batches, offset = [], 0
    while offset < LOG_END:
        size = min(1 + (offset + partition.partition) % 4, LOG_END - offset)
        kept = [i for i in range(size) if not (size == 4 and i == 1)]
        records = [Rec(i, b"k", _value(partition, offset + i)) for i in kept]
        batches.append(Batch(records, offset, leader_epoch=0, last_delta=size - 1))
        offset += size
    return batches


LOGS = {p: _log(p) for p in PARTITIONS}
OFFSETS = {p: [b.base_offset + r.delta for b in LOGS[p] for r in b.records] for p in PARTITIONS}


def _spoilt(batch: Batch, how: str) -> bytes:
    match how:
        case "header":
            return batch.with_(length=20).build()
        case "checksum":
            return batch.with_(crc=1).build()
        case "last offset":  # believed until the checksum is looked at
            return batch.with_(last_delta=batch.last + 3, crc=1).build()
        case _:
            return batch.build()


OFFSET = st.integers(0, LOG_END)
WHICH = st.integers(0, 5)
MOST_CONSUMERS = 4


class _Quiet:
    def set(self) -> None:
        return None


class Application:
    """One consumer, as its application sees it."""

    def __init__(self, limit: int) -> None:
        self.generations = count(1)
        self.generation = {p: next(self.generations) for p in PARTITIONS}
        self.position = dict.fromkeys(PARTITIONS, 0)
        self.paused: set[TopicPartition] = set()
        self.events: list[Any] = []
        self.buffer = FetchBuffer(limit, on_ready=lambda: None, on_room=lambda: None)
        self.backend: Backend

    def begin(self, backend: Backend, start: int) -> None:
        self.backend = backend
        self.position = dict.fromkeys(PARTITIONS, start)
        self.buffer.expect(self.generation)
        self.events.append(Assign({p: (g, _at(start)) for p, g in self.generation.items()}))

    def take(self, limit: int | None) -> None:
        rows = 0
        for item in self.buffer.take(limit, self.paused):
            assert not isinstance(item, Moved), "nothing moved the log"
            if isinstance(item, Failed):
                self._on_failed(item)
                continue
            partition = TopicPartition(item.topic, item.partition)
            assert partition not in self.paused
            expected = [o for o in OFFSETS[partition] if self.position[partition] <= o < item.next_offset]
            assert item.offsets.tolist() == expected
            assert [r.value for r in item.records()] == [_value(partition, o) for o in expected]
            self.position[partition] = item.next_offset
            rows += len(item)
        assert limit is None or rows <= limit

    def _on_failed(self, failed: Failed) -> None:
        """Only a batch that stayed unreadable stops a partition, and the position is in front of it."""
        assert isinstance(failed.error, RecordBatchError)
        assert self.position[failed.partition] <= failed.error.offset + 3
        self.seek(failed.partition, self.position[failed.partition])

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.generation[partition] = next(self.generations)
        self.position[partition] = offset
        self.buffer.expect(self.generation)
        self.events.append(Seek(partition, self.generation[partition], _at(offset)))

    def pause(self, partition: TopicPartition, paused: bool) -> None:
        (self.paused.add if paused else self.paused.discard)(partition)
        self.events.append(SetPaused(frozenset({partition}), paused))

    def check_charges(self) -> None:
        slots = [s for q in self.buffer._queues.values() for s in q]
        frames = {id(s.frame): s.frame.bytes for s in slots if s.frame is not None}
        assert self.buffer.charged_bytes == sum(frames.values()) + sum(s.extra_bytes for s in slots)


class Sessions:
    """The broker's memory of what each session fetches (KIP-227)."""

    def __init__(self, keep: bool) -> None:
        self._keep = keep
        self._numbers = count(100)
        self.fetched: dict[int, dict[TopicPartition, int]] = {}

    def take(self, entity: Any) -> tuple[int, dict[TopicPartition, int], bool]:
        """(session id, what is to be fetched, whether every partition must be answered)."""
        wanted = self.wanted(entity)
        if entity.session_epoch == -1:
            del self.fetched[entity.session_id]
            return 0, {}, True
        if entity.session_epoch == 0:
            number = next(self._numbers) if self._keep else 0
            self.fetched[number] = wanted
            return number, wanted, True
        self.fetched[entity.session_id] = wanted
        return entity.session_id, wanted, False

    def wanted(self, entity: Any) -> dict[TopicPartition, int]:
        named = [(TopicPartition("t", p.partition), p.fetch_offset) for t in entity.topics for p in t.partitions]
        assert len(dict(named)) == len(named), "a broker drops a second mention in silence"
        kept = self.fetched[entity.session_id] if entity.session_epoch > 0 else {}
        forgotten = {TopicPartition("t", n) for t in entity.forgotten_topics_data for n in t.partitions}
        assert forgotten <= kept.keys()
        return {p: offset for p, offset in {**kept, **dict(named)}.items() if p not in forgotten}


class PipelineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        load_kernels()
        self.now = 1.0
        self.applications: list[Application] = []
        self.jobs: list[Callable[[], None]] = []
        self.wire: list[UnsentRequest] = []
        self.leader_epoch = 0
        self.agenda: Agenda[Backend] = Agenda()  # as in the network thread: only who was touched is asked

    @initialize(
        limit=st.sampled_from([600, 4_000, 1 << 20]),
        refetches=st.sampled_from([0, 1, 50]),
        connections=st.sampled_from([1, 2]),
        consumers=st.sampled_from([1, 2, 3]),
        keep=st.booleans(),
    )
    def begin(self, limit: int, refetches: int, connections: int, consumers: int, keep: bool) -> None:
        properties: dict[str, object] = {
            "bootstrap.servers": "broker:9092",
            "max.partition.fetch.bytes": 400,
            "corrupt.batch.refetches": refetches,
            "fetch.connections": connections,
        }
        self.limit = limit
        self.config = parse_consumer(properties)
        self.sessions = Sessions(keep)
        self.metadata = MetadataManager(MetadataPolicy(300.0, RequestBackoff(0.1, 1.0), 300.0), MetadataListeners())
        self.fetching = SharedFetching(self.metadata, FetchContext(self._decode, self._hang_up))
        self._lead(0)
        for _ in range(consumers):
            self.open(0)

    def _lead(self, epoch: int) -> None:
        self.metadata.cluster = cluster_of(dict.fromkeys(PARTITIONS, (1, epoch)))
        self.agenda.touch_all()

    def _decode(self, frame: np.ndarray, tasks: list[Any], _policy: Any) -> None:
        for task in tasks:
            self.jobs.append(FrameJob(frame, [task], DecodeOptions()))

    def _hang_up(self, owner: str) -> None:
        self.wire = [request for request in self.wire if request.channel.owner != owner]

    # --- consumers come and go ---------------------------------------------------------------------------------------

    @precondition(lambda self: len(self.applications) < MOST_CONSUMERS)
    @rule(start=OFFSET)
    def open(self, start: int) -> None:
        application = Application(self.limit)
        around = BackendContext(
            self.metadata,
            self.fetching,
            lambda _, event: application.events.append(event),
            lambda: 0.0,
            NO_OBSERVER,
            self.agenda.touch,
        )
        backend = Backend(self.config, around, application.buffer, EventQueue(_Quiet()), "consumer")
        application.begin(backend, start)
        self.agenda.add(backend)
        self.applications.append(application)

    @precondition(lambda self: len(self.applications) > 1)
    @rule(which=WHICH)
    def close(self, which: int) -> None:
        application = self.applications.pop(which % len(self.applications))
        application.buffer.clear()
        application.backend.close()
        self.agenda.remove(application.backend)
        assert application.buffer.charged_bytes == 0

    # --- the network thread ------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 5.0]))
    def turn(self, seconds: float) -> None:
        self.now += seconds
        for application in self.applications:
            events, application.events = application.events, []
            for event in events:
                application.backend.apply(event)
                self.agenda.touch(application.backend)
        if "t" not in self.metadata.cluster.topics:  # whoever looked at it last has closed: somebody asks again
            self._lead(self.leader_epoch)
        for backend in self.agenda.due(self.now):
            poll = backend.poll(self.now)
            self.agenda.schedule(backend, self.now + poll.wait)
            for request in poll.requests:
                then(request, partial(self.agenda.touch, backend))
                self.wire.append(request)
        asked = self.fetching.poll(self.now).requests  # which may hang up
        self.wire += asked
        channels = [request.channel for request in self.wire if request.channel != CONTROL]
        assert len(set(channels)) == len(channels) <= MAX_CONNECTIONS, (
            "one request at a time on each of a few connections"
        )

    @rule(data=st.data(), rounds=st.integers(1, 3))
    def go_on(self, data: st.DataObject, rounds: int) -> None:
        """Turns of the loop, each with its answers, while the decoders have not come to anything yet."""
        for _ in range(rounds):
            self.turn(5.0)
            while self.wire:
                self.answer(data)

    @rule(rounds=st.integers(1, 6))
    def flow(self, rounds: int) -> None:
        """All goes well: who has data gets it, decoded and taken; fetches at the end of the log wait."""
        for _ in range(rounds):
            self.turn(0.0)
            for request in [r for r in self.wire if self._has_news(r)]:
                self.wire.remove(request)
                self._answer_honestly(request)
            while self.jobs:
                self.decode([0])
            for application in self.applications:
                application.take(None)

    def _has_news(self, request: UnsentRequest) -> bool:
        if request.api is not ApiKey.FETCH:
            return True
        return any(offset != LOG_END for offset in self.sessions.wanted(request.build(FETCH_VERSION)).values())

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        request = self.wire.pop(data.draw(st.integers(0, len(self.wire) - 1)))
        if request.api is ApiKey.OFFSET_FOR_LEADER_EPOCH:
            self._validate(request)
            return
        self._respond(request, lambda: (data.draw(st.sampled_from([2, 1, 3, 0])), data.draw(FAULTS)))

    def _validate(self, request: UnsentRequest) -> None:
        entity = request.build(EPOCH_VERSION)
        asked = [TopicPartition(t.topic, p.partition) for t in entity.topics for p in t.partitions]
        request.on_response(epoch_response(EPOCH_VERSION, {p: (0, 0, LOG_END) for p in asked}), self.now)

    def _respond(self, request: UnsentRequest, draw: Callable[[], tuple[int, list[str]]]) -> None:
        assert request.api is ApiKey.FETCH
        session, wanted, is_full = self.sessions.take(request.build(FETCH_VERSION))
        answers = {p: _answer_for(p, offset, *draw()) for p, offset in wanted.items()}
        answers = {p: t for p, t in answers.items() if is_full or t.get("records") or "code" in t}
        frame = as_array(frame_of(fetch_response(FETCH_VERSION, answers, session=session), 7))
        request.on_response(RawResponse(frame, FETCH_VERSION, 7, NodeId(1), "broker 1"), self.now)

    @rule(what=st.sampled_from(["leader", "connection"]))
    def disturb(self, what: str) -> None:
        if what == "leader":
            self.leader_epoch += 1
            self._lead(self.leader_epoch)
        elif self.wire:
            request = self.wire.pop(0)
            if request.api is ApiKey.FETCH:  # the client begins anew: the broker forgets the session by itself
                self.sessions.fetched.pop(request.build(FETCH_VERSION).session_id, None)
            request.on_failure(NetworkError("gone"), self.now)

    # --- decoders ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.jobs)
    @rule(which=st.lists(st.integers(0, 5), min_size=1, max_size=4))
    def decode(self, which: list[int]) -> None:
        for number in which:
            if self.jobs:
                self.jobs.pop(number % len(self.jobs))()

    # --- the applications --------------------------------------------------------------------------------------------

    def _one(self, which: int) -> Application:
        return self.applications[which % len(self.applications)]

    @rule(which=WHICH, limit=st.sampled_from([None, 0, 1, 3]))
    def take(self, which: int, limit: int | None) -> None:
        self._one(which).take(limit)

    @rule(
        which=WHICH,
        partition=st.sampled_from(PARTITIONS),
        what=st.sampled_from(["pause", "resume", "seek"]),
        offset=OFFSET,
    )
    def change_mind(self, which: int, partition: TopicPartition, what: str, offset: int) -> None:
        if what == "seek":
            self._one(which).seek(partition, offset)
        else:
            self._one(which).pause(partition, what == "pause")

    # --- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def charges_are_what_is_held(self) -> None:
        for application in self.applications:
            application.check_charges()

    def teardown(self) -> None:
        """From wherever the machine stopped, an honest broker brings every partition to the end of its log."""
        for application in self.applications:
            for partition in tuple(application.paused):
                application.pause(partition, False)
        for _ in range(6 * LOG_END * max(1, len(self.applications))):
            if all(self._is_done(a) for a in self.applications) and not self.jobs:
                break
            self.turn(5.0)
            while self.wire:
                self._answer_honestly(self.wire.pop(0))
            while self.jobs:
                self.decode([0])
            for application in self.applications:
                application.take(None)
        for application in self.applications:
            assert self._is_done(application), f"a partition does not go on: {application.position}"
            assert application.buffer.charged_bytes == 0
        self._settle()

    def _is_done(self, application: Application) -> bool:
        return application.position == dict.fromkeys(PARTITIONS, LOG_END)

    def _settle(self) -> None:
        """With all at the end of the log, the connections to a broker come down to the base."""
        if not self.applications:
            return
        for _ in range(8):
            self.turn(5.0)
            fetches = [request for request in self.wire if request.channel != CONTROL]
            if self.wire:
                self._answer_honestly(self.wire.pop(0))
        assert len(fetches) <= self.config.fetch_connections
        for application in tuple(self.applications[1:]):
            application.backend.close()
        self.applications[0].backend.close()
        asked = self.fetching.poll(self.now).requests
        self.wire += asked
        while self.wire:
            assert self.wire[0].channel == CONTROL, "only closing requests are left"
            self._answer_honestly(self.wire.pop(0))
        assert set(self.sessions.fetched) <= {0}, "every session was ended"

    def _answer_honestly(self, request: UnsentRequest) -> None:
        if request.api is ApiKey.FETCH:
            self._respond(request, lambda: (3, []))
        else:
            self._validate(request)


def _at(offset: int) -> At:
    return At(Offset(offset), NO_EPOCH)


def _answer_for(partition: TopicPartition, offset: int, most: int, faults: list[str]) -> dict[str, Any]:
    if not 0 <= offset <= LOG_END:
        return {"code": 1, "high": LOG_END}
    batches = [b for b in LOGS[partition] if b.end > offset][:most]
    spoilt = [_spoilt(b, f) for b, f in zip(batches, faults + [TOLD] * most, strict=False)]
    return {"high": LOG_END, "records": b"".join(spoilt)}


TestPipeline = PipelineMachine.TestCase
TestPipeline.settings = settings(max_examples=60, stateful_step_count=40)
