"""Processes fetch answers: next offsets, records to decode for each reader, and errors.

Thread: none (pure); owned by a fetch manager on the network thread.

As soon as a frame is in, the headers of its record batches show where each partition continues, so that the next fetch
leaves before anything of this frame is decoded: receiving and decoding overlap (except for small frames, which are
decoded immediately). The frame itself goes to the decoders, each partition once, with a reserved slot in the buffer of
every reader that wanted it.

Never touches a record, never skips: an answer that is not understood leaves the cursor where it is. A decision about
one reader's cursor does not affect another reader's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

from multilane.client.cluster import Leadership
from multilane.client.fetch.cursor import Cursor, Phase
from multilane.client.fetch.decoder import DecodeTask, Taker
from multilane.client.fetch.reader import FetchSettings, Reader
from multilane.errors import CorruptBatch, RecordBatchError, broker_error
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.types import LeaderEpoch, NodeId, Offset, TopicPartition
from multilane.wire.fetch import FetchedFrame, FetchedPartition
from multilane.wire.records.batches import BatchTable, scan

if TYPE_CHECKING:
    from multilane.client.fetch.buffer import Slot
    from multilane.client.fetch.fetch_connections import FetchConnection
    from multilane.client.fetch.wanted_partitions import WantedPartition, WantedPartitions
    from multilane.client.metadata import MetadataManager
    from multilane.client.net.requests import RawResponse

log = logger(__name__)

OFFSET_OUT_OF_RANGE: Final = 1
CORRUPT_MESSAGE: Final = 2

# In a frame with several readers, a share below this one is copied out if the frame is large enough to be worth it.
_SMALL_SHARE: Final = 0.25
_LARGE_FRAME: Final = 1 << 20

LookAt = Callable[[Reader, Cursor], None]
Later = Callable[[Reader, Cursor, float], None]


class _Readable(NamedTuple):
    """One partition's records, and the cursors that wanted them from this offset on."""

    fetched: FetchedPartition
    table: BatchTable
    cursors: list[tuple[Cursor, Reader]]

    @property
    def span(self) -> int:
        return self.fetched.records_end - self.fetched.records_start


class Answers:
    def __init__(
        self,
        metadata: MetadataManager,
        wanted: WantedPartitions,
        settings: FetchSettings,
        observer: Observer,
        look: LookAt,
        later: Later,
    ) -> None:
        self._metadata = metadata
        self._wanted = wanted
        self._settings = settings
        self._observer = observer
        self._look = look
        self._later = later
        self.ends: dict[TopicPartition, int] = {}  # the end of each readable log, as last reported

    def lag(self, wanted: WantedPartition) -> int | None:
        """Offsets that the partition is known to be behind; None if unknown. A lag below `min_bytes` counts as none,
        because the broker would not answer at once."""
        end = self.ends.get(wanted.partition)
        if end is None:
            return None
        behind = end - wanted.offset
        return behind if behind >= max(1, self._settings.kind.min_bytes) else 0

    def is_at_end(self, cursor: Cursor) -> bool:
        end = self.ends.get(cursor.partition)
        return end is not None and cursor.offset >= end

    def sort_out(
        self, connection: FetchConnection, response: FetchedFrame, raw: RawResponse, now: float
    ) -> list[DecodeTask]:
        readable: list[_Readable] = []
        for fetched in response.partitions:
            wanted = connection.find(fetched.topic_id or fetched.topic, fetched.partition)
            if wanted is None:
                self._observer.count("fetch.unasked_partition", broker=raw.broker)
                continue
            read = self._answered(wanted, fetched, response, raw, now)
            if read is not None:
                readable.append(read)
        return self._reserve(readable, raw)

    def _answered(
        self, wanted: WantedPartition, fetched: FetchedPartition, response: FetchedFrame, raw: RawResponse, now: float
    ) -> _Readable | None:
        offset = wanted.offset
        is_doubted = wanted.connection is not None and wanted in wanted.connection.review
        owners = self._wanted.end(wanted)
        for cursor, reader in owners:
            self._look(reader, cursor)
            if is_doubted:  # it may have been in flight when its consumer checked for new leaders
                cursor.on_change(cursor)
        if not fetched.error_code:
            committed = self._settings.kind.read_committed
            self.ends[wanted.partition] = fetched.last_stable_offset if committed else fetched.high_watermark
        cursors = [(c, r) for c, r in owners if _is_current(c, r, offset)]
        for cursor, reader in cursors:
            self._note_hints(cursor, reader, fetched, response, now)
        if fetched.error_code:
            for cursor, reader in cursors:
                self._refused(cursor, reader, fetched, raw.broker, now)
        elif fetched.diverging_epoch is not None:
            for cursor, reader in cursors:
                reader.on_error.diverged(cursor, *fetched.diverging_epoch)
        elif cursors and fetched.records_end > fetched.records_start:
            return self._scan(raw, cursors, fetched, offset, now)
        return None

    def _scan(
        self,
        raw: RawResponse,
        cursors: list[tuple[Cursor, Reader]],
        fetched: FetchedPartition,
        offset: Offset,
        now: float,
    ) -> _Readable | None:
        table = scan(raw.frame, fetched.records_start, fetched.records_end, offset).plausible(
            offset, fetched.high_watermark
        )
        if offset < table.next_offset:
            return _Readable(fetched, table, cursors)
        error = table.error
        if error is None:
            reason = f"no batch contains the requested offset {offset}"
            error = CorruptBatch(reason, offset=offset)
        for cursor, reader in cursors:
            if reader.buffer.is_offset_certain(cursor):
                reader.on_error.corrupt(cursor, _located(error, cursor, raw.broker))
            else:  # the offset is a guess: no verdict yet
                self.delay(cursor, now)
        return None

    # --- memory ------------------------------------------------------------------------------------------------------

    def _reserve(self, readable: list[_Readable], raw: RawResponse) -> list[DecodeTask]:
        """Slots in every buffer. A single reader is charged for the frame that it pins; several for their own spans."""
        shares: dict[Reader, list[tuple[Cursor, int]]] = {}
        for read in readable:
            for cursor, reader in read.cursors:
                shares.setdefault(reader, []).append((cursor, read.span))
        is_shared = len(shares) > 1
        slots: dict[Cursor, Slot] = {}
        small: set[Reader] = set()
        for reader, spans in shares.items():
            reserved = reader.buffer.reserve(raw.frame.nbytes, spans, is_shared=is_shared)
            slots.update((cursor, slot) for (cursor, _), slot in zip(spans, reserved, strict=True))
            own = sum(size for _, size in spans)
            if is_shared and raw.frame.nbytes >= _LARGE_FRAME and own < _SMALL_SHARE * raw.frame.nbytes:
                small.add(reader)
        tasks = [_task(read, slots, small, raw.broker) for read in readable]
        return [task for task in tasks if task.takers]

    # --- hints -------------------------------------------------------------------------------------------------------

    def _note_hints(
        self, cursor: Cursor, reader: Reader, fetched: FetchedPartition, response: FetchedFrame, now: float
    ) -> None:
        if fetched.preferred_read_replica >= 0:
            self._prefer(cursor, reader, NodeId(fetched.preferred_read_replica), now)
        if fetched.current_leader is not None and fetched.current_leader[0] >= 0:
            node, epoch = fetched.current_leader
            leader = Leadership(NodeId(node), LeaderEpoch(epoch))
            self._metadata.learn_leader(cursor.partition, leader, response.endpoints)

    def _prefer(self, cursor: Cursor, reader: Reader, replica: NodeId, now: float) -> None:
        """KIP-392. The leader sends only the node id. An unknown replica means that the cluster metadata is old; the
        delay keeps the cursor from going back and forth between the two."""
        if replica not in self._metadata.cluster.nodes:
            self._metadata.request_update()
            self.delay(cursor, now)
            return
        cursor.replica = replica
        cursor.replica_until = now + self._settings.replica_max_age
        self._later(reader, cursor, cursor.replica_until)

    # --- errors ------------------------------------------------------------------------------------------------------

    def _refused(self, cursor: Cursor, reader: Reader, fetched: FetchedPartition, broker: str, now: float) -> None:
        was_replica = cursor.replica is not None
        cursor.replica = None
        if fetched.error_code == OFFSET_OUT_OF_RANGE:
            if was_replica:  # a follower may be behind; only the leader's answer counts
                return
            if not reader.buffer.is_offset_certain(cursor):  # our offset is a guess until the checksums are checked
                self.delay(cursor, now)
                return
            reader.on_error.out_of_range(cursor, fetched)
            return
        error = broker_error(fetched.error_code, f"Fetch of {cursor.partition}")
        self._observer.count("fetch.partition_error", topic=cursor.partition.topic, code=error.name)
        if error.refresh_metadata:
            self._metadata.request_update()
        if fetched.error_code == CORRUPT_MESSAGE:  # the broker itself cannot read the batch
            reason = "the broker found the batch corrupt in its own log"
            broken = CorruptBatch(reason, offset=cursor.offset)
            reader.on_error.corrupt(cursor, _located(broken, cursor, broker))
            return
        log.log(logging.INFO if error.refresh_metadata else logging.WARNING, "%s; retrying", error)
        if error.refresh_metadata and self._has_new_leader(cursor):
            return  # the answer named it (KIP-951): no need to wait
        if error.retriable or error.code == -1:
            self.delay(cursor, now)
        else:
            reader.on_error.stopped(cursor, error)

    def _has_new_leader(self, cursor: Cursor) -> bool:
        leader = self._metadata.cluster.leadership(cursor.partition)
        return leader is not None and leader.node is not None and leader.epoch > cursor.leader_epoch

    def delay(self, cursor: Cursor, now: float) -> None:
        cursor.retries += 1
        cursor.not_before = now + self._settings.backoff.delay(cursor.retries)


def _is_current(cursor: Cursor, reader: Reader, offset: Offset) -> bool:
    return reader.is_current(cursor) and cursor.offset == offset and cursor.phase is Phase.FETCHING


def _task(read: _Readable, slots: dict[Cursor, Slot], small: set[Reader], broker: str) -> DecodeTask:
    takers = []
    copy_out = False
    for cursor, reader in read.cursors:
        again = cursor.refetches > 0 and cursor.offset == cursor.refetch_at
        cursor.advanced(Offset(read.table.next_offset), LeaderEpoch(read.table.last_epoch))
        slot = slots[cursor]
        if not slot.is_discarded:
            takers.append(Taker(slot, reader.buffer, reader.send_event, again))
            copy_out = copy_out or reader in small
    return DecodeTask(tuple(takers), read.table, read.fetched, broker, copy_out)


def _located(error: RecordBatchError, cursor: Cursor, broker: str) -> RecordBatchError:
    return error.at(topic=cursor.partition.topic, partition=cursor.partition.partition, broker=broker)
