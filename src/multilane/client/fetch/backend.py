"""The network side of one consumer: its cursors, its request managers, and its decisions about failing partitions.

Thread: network. The application thread reaches it by events only; decoders by events and the buffer.

Connects the cursors, lookups, validation and fetching of one consumer and owns the decisions that need more than one
of them: reset policies, truncation, corrupt batches, recreated topics.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multilane.client.events import (
    ApplicationEvent,
    Assign,
    BackgroundEvent,
    BatchReadable,
    BatchUnreadable,
    EventQueue,
    FindOffsets,
    Seek,
    SetPaused,
    announce,
)
from multilane.client.fetch.buffer import Failed, FetchBuffer, Moved
from multilane.client.fetch.cursor import At, Cursor, CursorTable, Lookup, Phase
from multilane.client.fetch.offsets import FoundOffsets, OffsetQuery, OffsetsManager
from multilane.client.fetch.reader import ErrorHandlers, FetchSettings, Reader
from multilane.client.fetch.reset import ResetRule
from multilane.client.fetch.start_offsets import Group, StartOffsets
from multilane.client.fetch.validation import Truncation, ValidationManager
from multilane.client.futures import fulfil, refuse
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import Poll, RequestManager, poll_all
from multilane.errors import (
    BlockFull,
    ClientClosed,
    LogTruncated,
    MultilaneError,
    OffsetOutOfRange,
    RecordBatchError,
)
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.types import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset
from multilane.wire.compose import EARLIEST, FetchClass

if TYPE_CHECKING:
    from uuid import UUID

    from multilane.client.cluster import Cluster
    from multilane.client.fetch.shared import SharedFetching
    from multilane.client.metadata import MetadataManager
    from multilane.config.consumer import ConsumerConfig
    from multilane.wire.fetch import FetchedPartition

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class BackendContext:
    """What a backend needs from its network thread."""

    metadata: MetadataManager
    fetching: SharedFetching
    send_event: Callable[[Backend, ApplicationEvent], None]
    wall: Callable[[], float]
    observer: Observer
    touch: Callable[[Backend], None] = lambda _backend: None  # polls this backend in the current turn


class Backend:
    def __init__(
        self,
        config: ConsumerConfig,
        context: BackendContext,
        buffer: FetchBuffer,
        background: EventQueue[BackgroundEvent],
        name: str,
        group: Group | None = None,
    ) -> None:
        self.config = config
        self.buffer = buffer
        self.name = name
        self.client_id = config.connection.client_id
        self._background = background
        self._metadata = context.metadata
        self._observer = context.observer
        reset = ResetRule(config.auto_offset_reset, context.wall)
        self._reset_of_lost = ResetRule(config.lost_position_reset, context.wall)
        self._fetching = context.fetching
        self._touch = context.touch
        self._cursors = CursorTable(self._on_cursor)
        self._interest: frozenset[str] = frozenset()
        self._start_offsets = StartOffsets(group, self._cursors, buffer, reset, self._stop, self._id_of)
        backoff = RequestBackoff(config.connection.retry_backoff, config.connection.retry_backoff_max)
        self._offsets = OffsetsManager(
            context.metadata,
            self._cursors,
            buffer,
            backoff=backoff,
            read_committed=config.read_committed,
            on_login_refused=self.fail,
        )
        self._validation = ValidationManager(
            context.metadata,
            self._cursors,
            backoff=backoff,
            on_truncation=self._truncated,
            on_refused=self._stop,
            on_login_refused=self.fail,
        )
        self._managers: tuple[RequestManager, ...] = (self._offsets, self._validation)
        self._reader = Reader(
            _fetch_settings(config, backoff),
            self._cursors,
            buffer,
            config.max_partition_fetch_bytes,
            ErrorHandlers(self._out_of_range, self._diverged, self._corrupt, self._stop, self.fail),
            lambda event: context.send_event(self, event),
        )

    def poll(self, now: float) -> Poll:
        """Runs before the poll of the fetching: nothing is read from a new leader before validation."""
        return poll_all(self._managers, now)

    def _id_of(self, topic: str) -> UUID | None:
        return self._metadata.cluster.topic_id(topic)

    def _on_cursor(self, cursor: Cursor) -> None:
        self._fetching.look_at(self._reader, cursor)
        self._touch(self)

    def apply(self, event: ApplicationEvent) -> None:
        match event:
            case Assign():
                self._assign(event)
            case Seek():
                self._seek(event)
            case SetPaused():
                self._set_paused(event)
            case FindOffsets():
                self._find(event)
            case BatchUnreadable():
                self._batch_unreadable(event)
            case BatchReadable():
                self._batch_readable(event)

    def fail(self, error: MultilaneError) -> None:
        announce(error, self._background)

    def refused(self, error: MultilaneError) -> None:
        """The cluster refuses this client: the next poll raises the error, and pending lookups fail."""
        self.fail(error)
        self._offsets.abandon(error)

    def close(self, reason: MultilaneError | None = None) -> None:
        self._offsets.abandon(reason or ClientClosed("the consumer was closed during an offset lookup"))
        self._fetching.leave(self._reader)
        self._start_offsets.give_up(self._cursors.keep_only({}))
        self._watch(frozenset())

    def topic_failed(self, topic: str, error: MultilaneError) -> None:
        if topic in self._interest:
            self.fail(error)

    def on_cluster(self, cluster: Cluster) -> None:
        """Detects recreated topics: the same name, another id, another log."""
        for cursor in self._cursors:
            self._announce_missing(cursor, cluster)
            known, current = cursor.topic_id, cluster.topic_id(cursor.partition.topic)
            if known is None or current is None or known == current:
                continue
            if current not in cursor.former_topic_ids:  # a broker that lags behind still reports the old one
                self._recreated(cursor)

    def _announce_missing(self, cursor: Cursor, cluster: Cluster) -> None:
        topic = cluster.topics.get(cursor.partition.topic)
        missing = topic is not None and cursor.partition.partition not in topic.partitions
        if topic is not None and missing and not cursor.is_missing:
            count = len(topic.partitions)
            log.warning("%s does not exist: the topic has %d partitions; waiting for it", cursor.partition, count)
        cursor.is_missing = missing

    # --- events of the application -----------------------------------------------------------------------------------

    def _assign(self, event: Assign) -> None:
        self._start_offsets.give_up(self._cursors.keep_only({p: g for p, (g, _) in event.starts.items()}))
        fresh = [Cursor(p, g, start) for p, (g, start) in event.starts.items() if self._cursors.get(p) is None]
        for cursor in fresh:
            self._cursors.put(cursor)
        self._start_offsets.ask(fresh)
        self._watch(self._cursors.topics())

    def _watch(self, topics: frozenset[str]) -> None:
        create = self.config.allow_auto_create_topics
        self._metadata.add_interest(topics - self._interest, create=create)
        self._metadata.drop_interest(self._interest - topics, create=create)
        self._interest = topics

    def _seek(self, event: Seek) -> None:
        old = self._cursors.get(event.partition)
        if old is None:
            return
        cursor = Cursor(event.partition, event.generation, event.start)
        self._start_offsets.give_up([old])
        cursor.paused = old.paused  # but not the leader epoch: an epoch given by the application is validated
        if isinstance(event.start, At) and cursor.topic_id is None:  # an offset in the log known so far
            cursor.topic_id, cursor.former_topic_ids = old.topic_id, old.former_topic_ids
        self._cursors.put(cursor)

    def _set_paused(self, event: SetPaused) -> None:
        for partition in event.partitions:
            cursor = self._cursors.get(partition)
            if cursor is not None:
                cursor.paused = event.paused

    def _find(self, event: FindOffsets) -> None:
        topics = frozenset(p.topic for p in event.wanted)
        self._metadata.add_interest(topics)

        def done(found: FoundOffsets | None, error: MultilaneError | None) -> None:
            self._metadata.drop_interest(topics)
            if found is not None:
                fulfil(event.future, found)
            elif error is not None:
                refuse(event.future, error)

        self._offsets.add_query(OffsetQuery(event.wanted, event.deadline, done, event.by_epoch))

    # --- failing partitions ------------------------------------------------------------------------------------------

    def _stop(self, cursor: Cursor, error: MultilaneError) -> None:
        if not isinstance(error, ClientClosed):  # closing the client is not a failure of this partition
            log.error("%s: fetching stopped: %s", cursor.partition, error)
            self._observer.count("partition.stopped", topic=cursor.partition.topic, error=type(error).__name__)
        cursor.stop()
        self.buffer.put(cursor, Failed(cursor.partition, error))

    def _out_of_range(self, cursor: Cursor, fetched: FetchedPartition) -> None:
        where = _log_range(fetched)
        self._observer.count("offset.out_of_range", topic=cursor.partition.topic)
        lookup = self._reset_of_lost.lookup(f"offset {cursor.offset} was out of range")
        if lookup is None:
            text = (
                f"{cursor.partition}: offset {cursor.offset} is not in the log{where}; "
                "seek to a valid offset, or set auto.offset.reset to earliest, latest or by_duration:..."
            )
            partition = cursor.partition
            error = OffsetOutOfRange(text, topic=partition.topic, partition=partition.partition, offset=cursor.offset)
            self._stop(cursor, error)
            return
        text = "%s: offset %d is not in the log%s; %s"
        log.warning(text, cursor.partition, cursor.offset, where, self._reset_of_lost)
        cursor.lost(lookup)

    def _truncated(self, truncation: Truncation) -> None:
        cursor, safe = truncation.cursor, truncation.safe
        if not self.buffer.is_offset_certain(cursor):  # its offset is a guess: validated again later
            return
        partition = cursor.partition
        self._observer.count("log.truncated", topic=partition.topic)
        at = "unknown" if safe is None else str(safe.offset)
        text = (
            f"{partition}: the log was truncated below offset {cursor.offset} (an unclean leader election); "
            f"the last common offset is {at}; records read from there on no longer exist"
        )
        lookup = self._reset_of_lost.lookup("the log was truncated")
        if lookup is None:
            error = LogTruncated(
                text,
                topic=partition.topic,
                partition=partition.partition,
                offset=cursor.offset,
                diverges_at=None if safe is None else safe.offset,
            )
            self._stop(cursor, error)
            return
        log.warning("%s; %s", text, "continuing from there" if safe is not None else self._reset_of_lost)
        if safe is None:
            cursor.lost(lookup)
            return
        cursor.leader_epoch = NO_EPOCH  # the point of divergence is validated again before it is read from
        cursor.positioned(safe)
        self.buffer.put(cursor, Moved(partition, safe.offset, safe.epoch, cursor.topic_id))

    def _diverged(self, cursor: Cursor, epoch: int, end_offset: int) -> None:
        if end_offset >= cursor.offset:  # unrequested, and irrelevant to the records already read
            self._observer.count("fetch.unasked_divergence", topic=cursor.partition.topic)
            return
        safe = At(Offset(end_offset), LeaderEpoch(epoch)) if end_offset >= 0 else None
        cursor.to(Phase.AWAIT_VALIDATION)
        self._truncated(Truncation(cursor, safe))

    def _recreated(self, cursor: Cursor) -> None:
        """Nothing of the new topic has been read, so reading from its beginning loses nothing."""
        log.warning(
            "%s: the topic was deleted and created again; reading the new one from its beginning", cursor.partition
        )
        self._observer.count("topic.recreated", topic=cursor.partition.topic)
        cursor.former_topic_ids |= {cursor.topic_id}
        cursor.topic_id = None
        cursor.leader_epoch = cursor.epoch = NO_EPOCH
        cursor.offset = NO_OFFSET  # an answer about the old topic that is still in flight no longer matches
        if cursor.phase is Phase.STOPPED:
            return
        cursor.refetch_epoch = self.buffer.seal(cursor)
        if cursor.phase is not Phase.AWAIT_RESET:
            cursor.lost(Lookup(EARLIEST, "the topic was created again"))

    def _corrupt(self, cursor: Cursor, error: RecordBatchError) -> None:
        self._observer.count("batch.unreadable", topic=cursor.partition.topic)
        cursor.refetches += 1
        cursor.refetch_at = cursor.offset
        cursor.replica = None  # the replica has broken bytes: the next fetch goes to the leader
        if cursor.refetches > self.config.corrupt_refetches or not error.retriable:
            self._stop(cursor, error)
            return
        log.warning("%s; fetching the batch again (%d of %d)", error, cursor.refetches, self.config.corrupt_refetches)

    def _batch_unreadable(self, event: BatchUnreadable) -> None:
        """Two decoders may report in either order; the later epoch has the earlier offset and counts."""
        cursor = self._cursors.current(event.partition, event.generation)
        if cursor is None or event.refetch_epoch <= cursor.refetch_epoch:
            return
        if cursor.phase is Phase.AWAIT_RESET:  # a new position is being looked up: its records belong to the new epoch
            cursor.refetch_epoch = event.refetch_epoch
            return
        cursor.rewound(Offset(event.error.offset), event.refetch_epoch)
        if cursor.phase is Phase.STOPPED:  # the buffer dropped its Failed together with the slots behind the bad batch
            self.buffer.put(cursor, Failed(cursor.partition, event.error))
        elif not isinstance(event.error, BlockFull):  # a full block is intact, only too large for one block
            self._corrupt(cursor, event.error)

    def _batch_readable(self, event: BatchReadable) -> None:
        cursor = self._cursors.current(event.partition, event.generation)
        if cursor is not None:
            cursor.refetches = 0


def _fetch_settings(config: ConsumerConfig, backoff: RequestBackoff) -> FetchSettings:
    kind = FetchClass(
        max_wait_ms=int(config.fetch_max_wait * 1_000),
        min_bytes=config.fetch_min_bytes,
        max_bytes=config.fetch_max_bytes,
        read_committed=config.read_committed,
        rack=config.connection.client_rack,
    )
    return FetchSettings(
        kind,
        backoff,
        config.connection.metadata_max_age,
        config.fetch_connections,
        config.max_decompressed_bytes,
        config.check_crcs,
        config.connection.client_id,
        config.fetch_pace,
    )


def _log_range(fetched: FetchedPartition) -> str:
    if fetched.log_start_offset < 0:
        return ""
    return f" (it begins at {fetched.log_start_offset} and ends at {fetched.high_watermark})"
