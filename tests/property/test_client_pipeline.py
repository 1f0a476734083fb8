"""A consumer's whole network side against a log: whatever is late, broken or moved, the application reads the log.

The machine plays broker, decoders and application at once, in any order. Batches arrive cut, with broken checksums,
broken headers or lies about their last offset; decoders finish in any order; leaders change; partitions are paused,
sought and evicted. What comes out must be the log: in order, nothing twice, nothing left out, and every byte of memory
given back.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from batch_builder import Batch, Rec
from multilane.client.events import Assign, EventQueue, Seek, SetPaused
from multilane.client.fetch.backend import Backend, Surroundings
from multilane.client.fetch.buffer import Failed, FetchBuffer, Moved
from multilane.client.fetch.cursor import At, Start
from multilane.client.fetch.decoder import FrameJob
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.request_state import Backoff
from multilane.client.net.requests import RawResponse, UnsentRequest
from multilane.config.consumer import parse_consumer
from multilane.errors import NetworkError, RecordBatchError
from multilane.hooks import NO_OBSERVER
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


class _Quiet:
    def set(self) -> None:
        return None


class PipelineMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        load_kernels()
        self.now = 1.0
        self.generations = count(1)
        self.generation: dict[TopicPartition, int] = {}
        self.position: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()
        self.events: list[Any] = []
        self.jobs: list[Callable[[], None]] = []
        self.wire: list[UnsentRequest] = []
        self.leader_epoch = 0
        self.failures = 0

    @initialize(
        limit=st.sampled_from([600, 4_000, 1 << 20]),
        refetches=st.sampled_from([0, 1, 50]),
        connections=st.sampled_from([1, 2]),
    )
    def begin(self, limit: int, refetches: int, connections: int) -> None:
        properties: dict[str, object] = {
            "bootstrap.servers": "broker:9092",
            "max.partition.fetch.bytes": 400,
            "corrupt.batch.refetches": refetches,
            "fetch.connections": connections,
        }
        config = parse_consumer(properties)
        self.metadata = MetadataManager(MetadataPolicy(300.0, Backoff(0.1, 1.0), 300.0), MetadataListeners())
        self.buffer = FetchBuffer(limit, on_ready=lambda: None, on_room=lambda: None)
        around = Surroundings(self.metadata, self._decode, lambda: 0.0, NO_OBSERVER)
        self.backend = Backend(config, around, self.buffer, EventQueue(_Quiet()), "fetch-test")
        self._lead(0)
        self.generation = {p: next(self.generations) for p in PARTITIONS}
        self.position = dict.fromkeys(PARTITIONS, 0)
        self.buffer.expect(self.generation)
        starts: dict[TopicPartition, tuple[int, Start]] = {p: (g, _at(0)) for p, g in self.generation.items()}
        self.events.append(Assign(starts))

    def _lead(self, epoch: int) -> None:
        self.metadata.cluster = cluster_of(dict.fromkeys(PARTITIONS, (1, epoch)))

    def _decode(self, backend: Backend, frame: np.ndarray, tasks: list[Any]) -> None:
        for task in tasks:
            self.jobs.append(FrameJob(frame, [task], DecodeOptions(), backend.buffer, self._tell))

    def _tell(self, event: Any) -> None:
        self.events.append(event)

    # --- the network thread ------------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.0, 5.0]))
    def turn(self, seconds: float) -> None:
        self.now += seconds
        events, self.events = self.events, []
        for event in events:
            self.backend.apply(event)
        for poll in self.backend.poll(self.now, can_decode=True):
            self.wire += poll.requests

    @rule(data=st.data(), rounds=st.integers(1, 3))
    def go_on(self, data: st.DataObject, rounds: int) -> None:
        """Turns of the loop, each with its answers, while the decoders have not come to anything yet."""
        for _ in range(rounds):
            self.turn(5.0)
            while self.wire:
                self.answer(data)

    @precondition(lambda self: self.wire)
    @rule(data=st.data())
    def answer(self, data: st.DataObject) -> None:
        request = self.wire.pop(0)
        if request.api is ApiKey.OFFSET_FOR_LEADER_EPOCH:
            entity = request.build(EPOCH_VERSION)
            asked = [TopicPartition(t.topic, p.partition) for t in entity.topics for p in t.partitions]
            request.on_response(epoch_response(EPOCH_VERSION, {p: (0, 0, LOG_END) for p in asked}), self.now)
            return
        assert request.api is ApiKey.FETCH
        told = {
            partition: self._told(
                partition,
                offset,
                data.draw(st.sampled_from([2, 1, 3, 0])),
                data.draw(FAULTS),
            )
            for partition, offset in _wanted(request)
        }
        self._respond(request, told)

    def _told(self, partition: TopicPartition, offset: int, most: int, faults: list[str]) -> dict[str, Any]:
        if not 0 <= offset <= LOG_END:
            return {"code": 1, "high": LOG_END}
        batches = [b for b in LOGS[partition] if b.end > offset][:most]
        spoilt = [_spoilt(b, f) for b, f in zip(batches, faults + [TOLD] * most, strict=False)]
        return {"high": LOG_END, "records": b"".join(spoilt)}

    def _respond(self, request: UnsentRequest, told: dict[TopicPartition, dict[str, Any]]) -> None:
        frame = as_array(frame_of(fetch_response(FETCH_VERSION, told), 7))
        request.on_response(RawResponse(frame, FETCH_VERSION, 7, NodeId(1), "broker 1"), self.now)

    @rule(what=st.sampled_from(["leader", "connection"]))
    def disturb(self, what: str) -> None:
        if what == "leader":
            self.leader_epoch += 1
            self._lead(self.leader_epoch)
        elif self.wire:
            self.wire.pop(0).on_failure(NetworkError("gone"), self.now)

    # --- decoders ----------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.jobs)
    @rule(which=st.lists(st.integers(0, 5), min_size=1, max_size=4))
    def decode(self, which: list[int]) -> None:
        for number in which:
            if self.jobs:
                self.jobs.pop(number % len(self.jobs))()

    # --- the application ---------------------------------------------------------------------------------------------

    @rule(limit=st.sampled_from([None, 0, 1, 3]))
    def take(self, limit: int | None) -> None:
        rows = 0
        for item in self.buffer.take(limit, self.paused):
            assert not isinstance(item, Moved), "nothing moved the log"
            if isinstance(item, Failed):
                self._told_of(item)
                continue
            partition = TopicPartition(item.topic, item.partition)
            assert partition not in self.paused
            expected = [o for o in OFFSETS[partition] if self.position[partition] <= o < item.next_offset]
            assert item.offsets.tolist() == expected
            assert [r.value for r in item.records()] == [_value(partition, o) for o in expected]
            self.position[partition] = item.next_offset
            rows += len(item)
        assert limit is None or rows <= limit

    def _told_of(self, failed: Failed) -> None:
        """Only a batch that stayed unreadable stops a partition, and the position is in front of it."""
        assert isinstance(failed.error, RecordBatchError)
        assert self.position[failed.partition] <= failed.error.offset + 3
        self.failures += 1
        self.seek(failed.partition, self.position[failed.partition])

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.generation[partition] = next(self.generations)
        self.position[partition] = offset
        self.buffer.expect(self.generation)
        self.events.append(Seek(partition, self.generation[partition], _at(offset)))

    def pause(self, partition: TopicPartition, paused: bool) -> None:
        (self.paused.add if paused else self.paused.discard)(partition)
        self.events.append(SetPaused(frozenset({partition}), paused))

    @rule(partition=st.sampled_from(PARTITIONS), what=st.sampled_from(["pause", "resume", "seek"]), offset=OFFSET)
    def change_mind(self, partition: TopicPartition, what: str, offset: int) -> None:
        if what == "seek":
            self.seek(partition, offset)
        else:
            self.pause(partition, what == "pause")

    # --- what must hold ----------------------------------------------------------------------------------------------

    @invariant()
    def charges_are_what_is_held(self) -> None:
        if not hasattr(self, "buffer"):
            return
        slots = [s for q in self.buffer._queues.values() for s in q]
        frames = {id(s.frame): s.frame.bytes for s in slots if s.frame is not None}
        assert self.buffer.charged_bytes == sum(frames.values()) + sum(s.extra_bytes for s in slots)

    def teardown(self) -> None:
        """From wherever the machine stopped, an honest broker brings every partition to the end of its log."""
        if not hasattr(self, "backend"):
            return
        for partition in tuple(self.paused):
            self.pause(partition, False)
        for _ in range(6 * LOG_END):
            if all(p == LOG_END for p in self.position.values()) and not self.jobs:
                break
            self.turn(5.0)
            while self.wire:
                self._answer_honestly()
            while self.jobs:
                self.decode([0])
            self.take(None)
        assert self.position == dict.fromkeys(PARTITIONS, LOG_END), "a partition does not go on"
        assert self.buffer.charged_bytes == 0

    def _answer_honestly(self) -> None:
        request = self.wire[0]
        if request.api is ApiKey.FETCH:
            self._respond(self.wire.pop(0), {p: self._told(p, o, 3, []) for p, o in _wanted(request)})
        else:
            self.answer(None)  # type: ignore[arg-type]


def _at(offset: int) -> At:
    return At(Offset(offset), NO_EPOCH)


def _wanted(request: UnsentRequest) -> list[tuple[TopicPartition, int]]:
    entity = request.build(FETCH_VERSION)
    return [(TopicPartition("t", int(p.partition)), int(p.fetch_offset)) for t in entity.topics for p in t.partitions]


TestPipeline = PipelineMachine.TestCase
TestPipeline.settings = settings(max_examples=60, stateful_step_count=40)
