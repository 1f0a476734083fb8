"""Fetches: which partitions to ask which broker for, and what to make of the answers.

Thread: none (pure state machine); owned by the network thread, one per consumer.

Two fetches per broker may be under way. As soon as a frame is in, the headers of its record batches tell where each
partition goes on, so that the next fetch leaves before anything of this frame is decoded: receiving and decoding
overlap. The frame itself goes to the decoders with a reserved slot per partition in the buffer.

Never touches a record, never blocks, never skips: an answer that is not understood leaves the cursor where it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from multilane.client.cluster import Leadership
from multilane.client.fetch.buffer import FetchBuffer, Slot
from multilane.client.fetch.cursor import Cursor, CursorTable, Phase
from multilane.client.fetch.fetch_session import (
    FETCH_SESSION_ID_NOT_FOUND,
    INVALID_FETCH_SESSION_EPOCH,
    key_of,
)
from multilane.client.fetch.lines import Line, Lines
from multilane.client.net.request_state import Backoff
from multilane.client.net.requests import NEVER, Poll, RawResponse, UnsentRequest
from multilane.errors import (
    AuthenticationError,
    CorruptBatch,
    MultilaneError,
    NetworkError,
    RecordBatchError,
    UnsupportedVersion,
    broker_error,
)
from multilane.hooks import NO_OBSERVER, Observer
from multilane.types import LeaderEpoch, NodeId, Offset, TopicPartition
from multilane.wire.compose import FETCH_AT_LEAST, FETCH_WITH_TOPIC_IDS, FetchClass, FetchItem, fetch_request
from multilane.wire.fetch import FetchedFrame, FetchedPartition, walk_fetch_response
from multilane.wire.messages import ApiKey
from multilane.wire.records.batches import BatchTable, scan

if TYPE_CHECKING:
    import numpy as np

    from multilane.client.metadata import MetadataManager

log = logging.getLogger(__name__)

OFFSET_OUT_OF_RANGE: Final = 1
CORRUPT_MESSAGE: Final = 2
_SMALLEST_FETCH: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class FetchPolicy:
    kind: FetchClass
    partition_max_bytes: int
    backoff: Backoff
    replica_max_age: float
    lines: int  # fetches that may be under way to one broker


@dataclass(frozen=True, slots=True)
class DecodeTask:
    """One partition's records in a frame, ready to be decoded into a slot."""

    slot: Slot
    table: BatchTable
    fetched: FetchedPartition
    broker: str
    again: bool  # the first batch could not be read last time


@dataclass(frozen=True, slots=True)
class FetchListeners:
    """Whom the fetch manager tells; all are called on the network thread and must not block."""

    decode: Callable[[np.ndarray, list[DecodeTask]], None]
    out_of_range: Callable[[Cursor, FetchedPartition], None]
    diverged: Callable[[Cursor, int, int], None]
    corrupt: Callable[[Cursor, RecordBatchError], None]
    stopped: Callable[[Cursor, MultilaneError], None]
    refused: Callable[[MultilaneError], None]
    observer: Observer = NO_OBSERVER


class FetchManager:
    def __init__(
        self,
        metadata: MetadataManager,
        cursors: CursorTable,
        buffer: FetchBuffer,
        policy: FetchPolicy,
        listeners: FetchListeners,
        owner: str,
    ) -> None:
        self._metadata = metadata
        self._cursors = cursors
        self._buffer = buffer
        self._policy = policy
        self._listeners = listeners
        self._observer = listeners.observer
        self._lines = Lines(owner, policy.lines, policy.backoff)

    # --- what to ask -------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        by_node, wait = self._fetchable(now)
        requests: list[UnsentRequest] = []
        for node in self._lines.in_turn(by_node):
            lines = self._lines.to(node)
            free = [line for line in lines if line.state.may_send(now)]
            wait = min(wait, *(line.state.wait(now) for line in lines if line not in free), NEVER)
            # Those first that were asked for longest ago: a broker that is short of room sends the first ones only.
            sent = self._share_out(free, sorted(by_node[node], key=lambda cursor: cursor.served))
            if sent:
                self._lines.served(node)
            requests += sent
        return Poll(tuple(requests), wait)

    def _share_out(self, free: list[Line], cursors: list[Cursor]) -> list[UnsentRequest]:
        """Partitions and room in equal parts. Where room is short one line takes all: no partition is left out."""
        room = self._room()
        least = min(_SMALLEST_FETCH, self._policy.partition_max_bytes)
        if room < least and not self._make_room():
            return []  # the buffer wakes us when the application has taken something
        used = free[: len(cursors)] if room >= least * len(free) else free[:1]
        return [
            self._request(line, cursors[number :: len(used)], max(room // len(used), 1))
            for number, line in enumerate(used)
        ]

    def _fetchable(self, now: float) -> tuple[dict[NodeId, list[Cursor]], float]:
        by_node: dict[NodeId, list[Cursor]] = {}
        wait = NEVER
        leaderless = False
        for cursor in self._cursors:
            if not cursor.is_fetchable(now):
                if cursor.phase is Phase.FETCHING and now < cursor.not_before:
                    wait = min(wait, cursor.not_before - now)
                continue
            node = self._node_for(cursor, now)
            if node is None:
                leaderless = True
                self._delay(cursor, now)
                wait = min(wait, cursor.not_before - now)
            else:
                by_node.setdefault(node, []).append(cursor)
        if leaderless:
            self._metadata.request_update()
        return by_node, wait

    def _node_for(self, cursor: Cursor, now: float) -> NodeId | None:
        if cursor.replica is not None and (
            now >= cursor.replica_until or cursor.replica not in self._metadata.cluster.nodes
        ):
            cursor.replica = None
        if cursor.replica is not None:
            return cursor.replica
        leader = self._metadata.cluster.leadership(cursor.partition)
        return None if leader is None else leader.node

    def _room(self) -> int:
        return self._buffer.room() - self._lines.reserved

    def _make_room(self) -> bool:
        """Paused partitions must not starve the others: what is buffered of them is fetched again later."""
        evicted = False
        for cursor in self._cursors:
            if cursor.paused and cursor.phase is Phase.FETCHING and not cursor.in_flight:
                given_up = self._buffer.evict(cursor)
                if given_up is not None:
                    cursor.rewound(*given_up)
                    evicted = True
        return evicted

    def _request(self, line: Line, cursors: list[Cursor], room: int) -> UnsentRequest:
        items = [self._item(cursor) for cursor in cursors]
        line.asked = {
            key_of(item): (cursor, cursor.generation, cursor.offset)
            for item, cursor in zip(items, cursors, strict=True)
        }
        turn = self._lines.next_turn()
        for cursor in cursors:
            cursor.in_flight = True
            cursor.served = turn
        session = line.session.next_request({key_of(i): i for i in items})
        kind = self._policy.kind
        limit = min(kind.max_bytes, max(room, _SMALLEST_FETCH), len(items) * self._policy.partition_max_bytes)
        sized = FetchClass(kind.max_wait_ms, kind.min_bytes, limit, kind.read_committed, kind.rack)
        line.reserved = limit
        line.state.sent()
        return UnsentRequest(
            api=ApiKey.FETCH,
            build=lambda version: fetch_request(version, sized, session.named, session.forgotten, session.step),
            on_response=lambda raw, now: self._on_frame(line, raw, now),
            on_failure=lambda error, now: self._on_failure(line, error, now),
            node=line.node,
            channel=line.channel,
            at_least=FETCH_AT_LEAST,
            at_most=None if all(i.topic_id is not None for i in items) else FETCH_WITH_TOPIC_IDS - 1,
            raw=True,
        )

    def _item(self, cursor: Cursor) -> FetchItem:
        if cursor.topic_id is None:
            cursor.topic_id = self._metadata.cluster.topic_id(cursor.partition.topic)
        return FetchItem(
            topic=cursor.partition.topic,
            topic_id=cursor.topic_id,
            partition=cursor.partition.partition,
            offset=cursor.offset,
            leader_epoch=cursor.leader_epoch if cursor.replica is None else LeaderEpoch(-1),
            max_bytes=self._policy.partition_max_bytes,
        )

    # --- what to make of the answer ----------------------------------------------------------------------------------

    def _on_frame(self, line: Line, raw: RawResponse, now: float) -> None:
        response = walk_fetch_response(raw.frame, raw.version, raw.correlation_id)
        self._observer.count("fetch.bytes", raw.frame.nbytes, broker=str(line.node))
        raw.throttled(response.throttle_ms)
        asked = self._answered(line)
        if response.error_code:
            line.session.reset()
            line.state.failed(now)
            if response.error_code not in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH):
                self._metadata.request_update()
            log.info("broker %s refused a fetch: %s", raw.broker, broker_error(response.error_code, "Fetch"))
            self._observer.count("fetch.refused", broker=str(line.node), code=str(response.error_code))
            return
        line.session.on_answer(response.session_id)
        line.state.succeeded()
        tasks = self._sort_out(response, asked, raw, now)
        if tasks:
            self._listeners.decode(raw.frame, tasks)

    def _answered(self, line: Line) -> dict[tuple[object, int], tuple[Cursor, int, int]]:
        """The request is over; what it asked, found by topic id and by topic name."""
        asked: dict[tuple[object, int], tuple[Cursor, int, int]] = {}
        for (topic, topic_id, partition), entry in line.asked.items():
            entry[0].in_flight = False
            asked[topic, partition] = entry
            if topic_id is not None:
                asked[topic_id, partition] = entry
        line.asked = {}
        line.reserved = 0
        return asked

    def _sort_out(
        self,
        response: FetchedFrame,
        asked: dict[tuple[object, int], tuple[Cursor, int, int]],
        raw: RawResponse,
        now: float,
    ) -> list[DecodeTask]:
        readable: list[tuple[Cursor, FetchedPartition, BatchTable]] = []
        for fetched in response.partitions:
            entry = asked.get((fetched.topic_id or fetched.topic, fetched.partition))
            if entry is None:
                self._observer.count("fetch.unasked_partition", broker=raw.broker)
                continue
            cursor, generation, offset = entry
            if not self._is_current(cursor, generation, offset):
                continue
            self._note_hints(cursor, fetched, response, now)
            if fetched.error_code:
                self._refused(cursor, fetched, raw.broker, now)
            elif fetched.diverging_epoch is not None:
                self._listeners.diverged(cursor, *fetched.diverging_epoch)
            elif fetched.records_end > fetched.records_start:
                table = self._scan(raw, cursor, fetched, now)
                if table is not None:
                    readable.append((cursor, fetched, table))
        return self._reserve(readable, raw)

    def _is_current(self, cursor: Cursor, generation: int, offset: int) -> bool:
        return (
            self._cursors.current(cursor.partition, generation) is cursor
            and cursor.offset == offset
            and cursor.phase is Phase.FETCHING
        )

    def _scan(self, raw: RawResponse, cursor: Cursor, fetched: FetchedPartition, now: float) -> BatchTable | None:
        table = scan(raw.frame, fetched.records_start, fetched.records_end, cursor.offset)
        error = table.error
        if cursor.offset < table.next_offset <= fetched.high_watermark:
            return table
        if not self._buffer.is_settled(cursor):  # nothing is judged by an offset that is a guess
            self._delay(cursor, now)
            return None
        if error is None:  # the checksum does not cover a batch's offset: what cannot be, is not believed
            reason = (
                f"its batches end at {table.next_offset}, but {cursor.offset} was asked for "
                f"and the log ends at {fetched.high_watermark}"
            )
            error = CorruptBatch(reason, offset=cursor.offset)
        self._listeners.corrupt(cursor, _placed(error, cursor, raw.broker))
        return None

    def _reserve(
        self, readable: list[tuple[Cursor, FetchedPartition, BatchTable]], raw: RawResponse
    ) -> list[DecodeTask]:
        if not readable:
            return []
        spans = [(cursor, fetched.records_end - fetched.records_start) for cursor, fetched, _ in readable]
        slots = self._buffer.reserve(raw.frame.nbytes, spans)
        tasks = []
        for slot, (cursor, fetched, table) in zip(slots, readable, strict=True):
            again = cursor.refetches > 0 and cursor.offset == cursor.refetch_at
            cursor.advanced(Offset(table.next_offset), LeaderEpoch(table.last_epoch))
            if not slot.void:
                tasks.append(DecodeTask(slot, table, fetched, raw.broker, again))
        return tasks

    def _note_hints(self, cursor: Cursor, fetched: FetchedPartition, response: FetchedFrame, now: float) -> None:
        if fetched.preferred_read_replica >= 0:
            self._prefer(cursor, NodeId(fetched.preferred_read_replica), now)
        if fetched.current_leader is not None and fetched.current_leader[0] >= 0:
            node, epoch = fetched.current_leader
            leader = Leadership(NodeId(node), LeaderEpoch(epoch))
            self._metadata.learn_leader(cursor.partition, leader, response.endpoints)

    def _prefer(self, cursor: Cursor, replica: NodeId, now: float) -> None:
        """KIP-392. The leader sends nothing but the name, so a replica that we do not know must not be asked after
        in a circle: the picture of the cluster is old."""
        if replica not in self._metadata.cluster.nodes:
            self._metadata.request_update()
            self._delay(cursor, now)
            return
        cursor.replica = replica
        cursor.replica_until = now + self._policy.replica_max_age

    # --- what went wrong ---------------------------------------------------------------------------------------------

    def _refused(self, cursor: Cursor, fetched: FetchedPartition, broker: str, now: float) -> None:
        was_replica = cursor.replica is not None
        cursor.replica = None
        if fetched.error_code == OFFSET_OUT_OF_RANGE:
            if was_replica:  # a follower may be behind; only the leader's word counts
                return
            if not self._buffer.is_settled(cursor):  # our offset is a guess until the checksums are checked
                self._delay(cursor, now)
                return
            self._listeners.out_of_range(cursor, fetched)
            return
        error = broker_error(fetched.error_code, f"Fetch of {cursor.partition}")
        self._observer.count("fetch.partition_error", topic=cursor.partition.topic, code=error.name)
        if error.refresh_metadata:
            self._metadata.request_update()
        if fetched.error_code == CORRUPT_MESSAGE:  # the broker itself cannot read what is there
            reason = "the broker found it corrupt in its own log"
            self._listeners.corrupt(cursor, _placed(CorruptBatch(reason, offset=cursor.offset), cursor, broker))
            return
        log.log(logging.INFO if error.refresh_metadata else logging.WARNING, "%s; asking again", error)
        if error.refresh_metadata and self._has_new_leader(cursor):
            return  # the answer itself named it (KIP-951): no need to wait
        if error.retriable or error.code == -1:
            self._delay(cursor, now)
        else:
            self._listeners.stopped(cursor, error)

    def _has_new_leader(self, cursor: Cursor) -> bool:
        leader = self._metadata.cluster.leadership(cursor.partition)
        return leader is not None and leader.node is not None and leader.epoch > cursor.leader_epoch

    def _on_failure(self, line: Line, error: MultilaneError, now: float) -> None:
        cursors = {id(entry[0]): entry[0] for entry in self._answered(line).values()}.values()
        line.session.reset()
        line.state.failed(now)
        self._fall_back(line.node, cursors)
        if isinstance(error, NetworkError) or error.refresh_metadata:
            self._metadata.request_update()
        if isinstance(error, AuthenticationError) and not error.retriable:  # others may be fine: who would tell it?
            self._listeners.refused(error)
        elif isinstance(error, UnsupportedVersion) or not (error.retriable or error.fatal):
            for cursor in cursors:
                if self._cursors.get(cursor.partition) is cursor and cursor.phase is Phase.FETCHING:
                    self._listeners.stopped(cursor, error)

    def _fall_back(self, node: NodeId, cursors: Iterable[Cursor]) -> None:
        """KIP-392: a replica that does not answer is left for the leader."""
        for cursor in cursors:
            if cursor.replica == node:
                cursor.replica = None

    def _delay(self, cursor: Cursor, now: float) -> None:
        cursor.retries += 1
        cursor.not_before = now + self._policy.backoff.delay(cursor.retries)

    def partitions_under_way(self) -> frozenset[TopicPartition]:
        return frozenset(c.partition for c in self._cursors if c.in_flight)


def _placed(error: RecordBatchError, cursor: Cursor, broker: str) -> RecordBatchError:
    return error.at(topic=cursor.partition.topic, partition=cursor.partition.partition, broker=broker)
