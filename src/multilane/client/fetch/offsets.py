"""Looks up offsets: the beginning and end of a log, the offset at a time, and the end of a leader epoch.

Thread: none (pure state machine); owned by the network thread, one per consumer.

Serves two callers with one mechanism: cursors that have no position (`AWAIT_RESET`), and the application's lookups
(`offsets_for_times`, `beginning_offsets`, ...). A lookup is split by leader. A retriable failure (no leader yet, moved
leader) is retried until the lookup's deadline; any other failure fails the lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from multilane.client.fetch.buffer import Failed, Moved
from multilane.client.fetch.cursor import At, Cursor, CursorTable, Lookup, Phase
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER, Poll, UnsentRequest
from multilane.errors import AuthenticationError, MultilaneError, OperationTimeout, UnsupportedVersion, broker_error
from multilane.logs import logger
from multilane.types import NO_EPOCH, LeaderEpoch, NodeId, Offset, OffsetAndTimestamp, TopicPartition
from multilane.wire.compose import (
    EARLIEST,
    EPOCH_AT_LEAST,
    LATEST,
    LIST_OFFSETS_AT_LEAST,
    MAX_TIMESTAMP,
    MAX_TIMESTAMP_AT_LEAST,
    epoch_request,
    list_offsets_request,
)
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.fetch.buffer import FetchBuffer
    from multilane.client.metadata import MetadataManager

log = logger(__name__)

FoundOffsets = Mapping[TopicPartition, OffsetAndTimestamp | None]


class PartlyFound(OperationTimeout):
    """A lookup was answered only in part before its deadline. `found` holds that part."""

    def __init__(self, message: str, found: FoundOffsets) -> None:
        super().__init__(message)
        self.found = found


@dataclass(slots=True, eq=False)
class OffsetQuery:
    """A lookup of the application. `done` is called once, with the answer or with the error."""

    wanted: Mapping[TopicPartition, int]
    deadline: float
    done: Callable[[FoundOffsets | None, MultilaneError | None], None]
    by_epoch: bool = False  # `wanted` holds leader epochs whose ends are looked up
    found: dict[TopicPartition, OffsetAndTimestamp | None] = field(default_factory=dict)
    in_flight: set[TopicPartition] = field(default_factory=set)
    failures: int = 0
    not_before: float = 0.0
    last_error: MultilaneError | None = None


class OffsetsManager:
    def __init__(
        self,
        metadata: MetadataManager,
        cursors: CursorTable,
        buffer: FetchBuffer,
        *,
        backoff: RequestBackoff,
        read_committed: bool,
        on_login_refused: Callable[[MultilaneError], None] = lambda _: None,
    ) -> None:
        self._metadata = metadata
        self._cursors = cursors
        self._buffer = buffer
        self._backoff = backoff
        self._read_committed = read_committed
        self._on_login_refused = on_login_refused
        self._queries: list[OffsetQuery] = []

    def add_query(self, query: OffsetQuery) -> None:
        self._queries.append(query)

    def abandon(self, error: MultilaneError) -> None:
        """The consumer closes: fails all lookups."""
        queries, self._queries = self._queries, []
        for query in queries:
            query.done(None, error)

    def poll(self, now: float) -> Poll:
        self._expire(now)
        requests: list[UnsentRequest] = []
        waits = [NEVER]
        for query in list(self._queries):  # a refused query is removed at once
            waits.append(max(0.0, query.deadline - now))
            waits.append(self._poll_query(query, now, requests))
        waits.append(self._poll_resets(now, requests))
        return Poll(tuple(requests), min(waits))

    # --- lookups of the application ---------------------------------------------------------------------------------

    def _expire(self, now: float) -> None:
        for query in [q for q in self._queries if now >= q.deadline]:
            self._queries.remove(query)
            missing = ", ".join(str(p) for p in sorted(set(query.wanted) - set(query.found))[:5])
            error = query.last_error or self._metadata.failure
            cause = f": {error}" if error else ""
            text = f"timed out while looking up the offsets of {missing}{cause}"
            query.done(None, PartlyFound(text, dict(query.found)))

    def _poll_query(self, query: OffsetQuery, now: float, requests: list[UnsentRequest]) -> float:
        open_ = {p: t for p, t in query.wanted.items() if p not in query.found and p not in query.in_flight}
        if not open_:
            return NEVER
        if now < query.not_before:
            return query.not_before - now
        by_leader, leaderless = self._by_leader(open_)
        for node, wanted in by_leader.items():
            query.in_flight.update(wanted)
            requests.append(
                self._asking(query)(
                    node,
                    wanted,
                    lambda answers, at, q=query, w=wanted: self._answered_query(q, w, answers, at),
                    lambda error, at, q=query, w=wanted: self._failed_query(q, w, error, at),
                )
            )
        if leaderless:
            refusal = self._metadata.failure
            if isinstance(refusal, AuthenticationError) and not self._goes_on_after(query, refusal, now):
                return NEVER
            self._metadata.request_update()
            query.last_error = self._metadata.why_no_leader(leaderless[0])
            self._delay_query(query, now)
            return query.not_before - now
        return NEVER

    def _answered_query(
        self, query: OffsetQuery, wanted: Collection[TopicPartition], answers: Collection[_Answer], now: float
    ) -> None:
        query.in_flight.difference_update(wanted)
        if len(answers) < len(wanted):  # the broker left some out: retry, but not at once
            self._delay_query(query, now)
        for answer in answers:
            if answer.code == 0:
                query.found[answer.partition] = answer.found
            elif not self._goes_on_after(query, _refusal(query, answer), now):
                return
        if query in self._queries and len(query.found) == len(query.wanted):
            self._queries.remove(query)
            query.done(query.found, None)

    def _failed_query(
        self, query: OffsetQuery, wanted: Iterable[TopicPartition], error: MultilaneError, now: float
    ) -> None:
        query.in_flight.difference_update(wanted)
        self._goes_on_after(query, error, now)

    def _goes_on_after(self, query: OffsetQuery, error: MultilaneError, now: float) -> bool:
        """Whether the query is retried after this error; otherwise it has failed with it."""
        query.last_error = error
        if error.refresh_metadata:
            self._metadata.request_update()
        if error.retriable:
            self._delay_query(query, now)
            return True
        if query in self._queries:
            self._queries.remove(query)
            query.done(None, error)
        return False

    def _delay_query(self, query: OffsetQuery, now: float) -> None:
        query.failures += 1
        query.not_before = now + self._backoff.delay(query.failures)

    # --- cursors without a position ----------------------------------------------------------------------------------

    def _poll_resets(self, now: float, requests: list[UnsentRequest]) -> float:
        lost = [c for c in self._cursors if c.phase is Phase.AWAIT_RESET and not c.in_flight]
        ready = {c.partition: c for c in lost if now >= c.not_before}
        by_leader, leaderless = self._by_leader({p: _lookup(c) for p, c in ready.items()})
        for node, wanted in by_leader.items():
            asked = [ready[p] for p in wanted]
            for cursor in asked:
                cursor.in_flight = True
            requests.append(
                self._request(
                    node,
                    wanted,
                    lambda answers, at, a=asked: self._answered_resets(a, answers, at),  # type: ignore[misc]
                    lambda error, at, a=asked: self._failed_resets(a, error, at),  # type: ignore[misc]
                )
            )
        if leaderless:  # these wait for new cluster metadata, not for a time
            self._metadata.request_update()
        waiting = [c for c in lost if not c.in_flight and c.partition not in leaderless]
        return min((max(0.0, c.not_before - now) for c in waiting), default=NEVER)

    def _answered_resets(self, asked: list[Cursor], answers: Iterable[_Answer], now: float) -> None:
        by_partition = {a.partition: a for a in answers}
        for cursor in asked:
            cursor.in_flight = False
            if self._cursors.get(cursor.partition) is not cursor or cursor.phase is not Phase.AWAIT_RESET:
                continue
            answer = by_partition.get(cursor.partition)
            if answer is None:
                self._delay(cursor, now)
            elif answer.code:
                self._reset_refused(cursor, broker_error(answer.code, f"ListOffsets of {cursor.partition}"), now)
            else:
                self._set_position(cursor, answer, now)

    def _set_position(self, cursor: Cursor, answer: _Answer, now: float) -> None:
        if answer.found is None and _lookup(cursor) < 0:  # every log has a beginning and an end: retry
            self._delay(cursor, now)
            return
        if answer.found is None:  # no record is that late: continue at the end of the log
            cursor.lookup = Lookup(LATEST, cursor.lookup.reason if cursor.lookup else "seek")
            return
        # At the end the epoch is the leader's: no earlier record is newer, and truncation below it is noticed.
        epoch = answer.found.leader_epoch if _lookup(cursor) == LATEST else NO_EPOCH
        at = At(answer.found.offset, epoch)
        if 0 <= cursor.offset < at.offset:  # a position that the log no longer has
            fate = "were deleted before they were read" if _lookup(cursor) == EARLIEST else "are skipped"
            text = "%s: continuing at offset %d: %d offsets from %d on %s"
            log.warning(text, cursor.partition, at.offset, at.offset - cursor.offset, cursor.offset, fate)
        cursor.retries = 0
        if cursor.resets:  # its last position was of no use: back off, it may be sent in circles
            cursor.not_before = now + self._backoff.delay(cursor.resets)
        cursor.resets += 1
        cursor.topic_id = cursor.topic_id or self._metadata.cluster.topic_id(cursor.partition.topic)
        cursor.positioned(at)
        self._buffer.put(cursor, Moved(cursor.partition, at.offset, at.epoch, cursor.topic_id))

    def _failed_resets(self, asked: list[Cursor], error: MultilaneError, now: float) -> None:
        for cursor in asked:
            cursor.in_flight = False
            if self._cursors.get(cursor.partition) is cursor and cursor.phase is Phase.AWAIT_RESET:
                self._reset_refused(cursor, error, now)

    def _reset_refused(self, cursor: Cursor, error: MultilaneError, now: float) -> None:
        if error.refresh_metadata:
            self._metadata.request_update()
        login_refused = error.fatal and not isinstance(error, UnsupportedVersion)
        if login_refused and not error.retriable:
            self._on_login_refused(error)
        if error.retriable or login_refused:
            self._delay(cursor, now)
        else:
            cursor.stop()
            self._buffer.put(cursor, Failed(cursor.partition, error))

    def _delay(self, cursor: Cursor, now: float) -> None:
        cursor.retries += 1
        cursor.not_before = now + self._backoff.delay(cursor.retries)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _by_leader(
        self, wanted: Mapping[TopicPartition, int]
    ) -> tuple[dict[NodeId, dict[TopicPartition, tuple[int, int]]], list[TopicPartition]]:
        by_leader: dict[NodeId, dict[TopicPartition, tuple[int, int]]] = {}
        leaderless: list[TopicPartition] = []
        for partition, timestamp in wanted.items():
            leader = self._metadata.cluster.leadership(partition)
            if leader is None or leader.node is None:
                leaderless.append(partition)
            else:
                by_leader.setdefault(leader.node, {})[partition] = (timestamp, leader.epoch)
        return by_leader, leaderless

    def _asking(self, query: OffsetQuery) -> Callable[..., UnsentRequest]:
        return self._epoch_request if query.by_epoch else self._request

    def _epoch_request(
        self,
        node: NodeId,
        wanted: Mapping[TopicPartition, tuple[int, int]],
        on_answers: Callable[[list[_Answer], float], None],
        on_failure: Callable[[MultilaneError, float], None],
    ) -> UnsentRequest:
        asked = {partition: (leader_epoch, epoch) for partition, (epoch, leader_epoch) in wanted.items()}
        return UnsentRequest(
            api=ApiKey.OFFSET_FOR_LEADER_EPOCH,
            build=lambda version: epoch_request(version, asked),
            on_response=lambda response, now: on_answers(_epoch_answers(response, wanted), now),
            on_failure=on_failure,
            node=node,
            at_least=EPOCH_AT_LEAST,
        )

    def _request(
        self,
        node: NodeId,
        wanted: Mapping[TopicPartition, tuple[int, int]],
        on_answers: Callable[[list[_Answer], float], None],
        on_failure: Callable[[MultilaneError, float], None],
    ) -> UnsentRequest:
        newest = any(timestamp == MAX_TIMESTAMP for timestamp, _ in wanted.values())
        return UnsentRequest(
            api=ApiKey.LIST_OFFSETS,
            build=lambda version: list_offsets_request(
                version, wanted, read_committed=self._read_committed, timeout_ms=30_000
            ),
            on_response=lambda response, now: on_answers(_answers(response, wanted), now),
            on_failure=on_failure,
            node=node,
            at_least=MAX_TIMESTAMP_AT_LEAST if newest else LIST_OFFSETS_AT_LEAST,
        )


@dataclass(frozen=True, slots=True)
class _Answer:
    partition: TopicPartition
    code: int
    found: OffsetAndTimestamp | None


def _answers(response: Any, wanted: Mapping[TopicPartition, object]) -> list[_Answer]:
    """The answers about requested partitions; unrequested ones are ignored."""
    answers = []
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(str(topic.name), int(entry.partition_index))
            if partition in wanted:
                answers.append(_Answer(partition, int(entry.error_code), _found(entry)))
    return answers


def _epoch_answers(response: Any, wanted: Mapping[TopicPartition, object]) -> list[_Answer]:
    """The same for OffsetForLeaderEpoch."""
    answers = []
    for topic in response.topics:
        for entry in topic.partitions:
            partition = TopicPartition(str(topic.topic), int(entry.partition))
            end, epoch = Offset(int(entry.end_offset)), LeaderEpoch(int(entry.leader_epoch))
            if partition in wanted:
                found = OffsetAndTimestamp(end, -1, epoch) if end >= 0 and epoch >= 0 else None
                answers.append(_Answer(partition, int(entry.error_code), found))
    return answers


def _refusal(query: OffsetQuery, answer: _Answer) -> MultilaneError:
    name = "OffsetForLeaderEpoch" if query.by_epoch else "ListOffsets"
    return broker_error(answer.code, f"{name} of {answer.partition}")


def _found(entry: Any) -> OffsetAndTimestamp | None:
    if int(entry.offset) < 0:
        return None
    return OffsetAndTimestamp(Offset(int(entry.offset)), int(entry.timestamp), LeaderEpoch(int(entry.leader_epoch)))


def _lookup(cursor: Cursor) -> int:
    return LATEST if cursor.lookup is None else cursor.lookup.timestamp
