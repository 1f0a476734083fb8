"""Asks a new leader whether the records we have read are still in its log.

Thread: none (pure state machine); owned by the network thread, one per consumer.

After an unclean election a leader may lack records that we have already read, and have others at their offsets. Each
time the leader epoch of a partition rises, its cursor waits here until OffsetForLeaderEpoch returns the end of our last
record's epoch on the new leader. An end below our offset means that the log was truncated: `LogTruncated`, or, with a
reset policy, a move back to the point of divergence and a warning.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from multilane.client.fetch.cursor import At, Cursor, CursorTable, Phase
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER, Poll, UnsentRequest
from multilane.errors import MultilaneError, UnsupportedVersion, broker_error
from multilane.types import LeaderEpoch, NodeId, Offset, TopicPartition
from multilane.wire.compose import EPOCH_AT_LEAST, epoch_request
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.metadata import MetadataManager


@dataclass(frozen=True, slots=True)
class Truncation:
    """The log ends or diverges below our offset. `safe` is the last point where both histories agree, if known."""

    cursor: Cursor
    safe: At | None


class ValidationManager:
    def __init__(
        self,
        metadata: MetadataManager,
        cursors: CursorTable,
        *,
        backoff: RequestBackoff,
        on_truncation: Callable[[Truncation], None],
        on_refused: Callable[[Cursor, MultilaneError], None],
        on_login_refused: Callable[[MultilaneError], None] = lambda _: None,
    ) -> None:
        self._metadata = metadata
        self._cursors = cursors
        self._backoff = backoff
        self._on_truncation = on_truncation
        self._on_refused = on_refused
        self._on_login_refused = on_login_refused

    def poll(self, now: float) -> Poll:
        self._notice_new_leaders()
        waiting = [c for c in self._cursors if c.phase is Phase.AWAIT_VALIDATION and not c.in_flight]
        by_leader: dict[NodeId, list[Cursor]] = {}
        for cursor in waiting:
            if now < cursor.not_before:
                continue
            leader = self._metadata.cluster.leadership(cursor.partition)
            if leader is None or leader.node is None:
                self._metadata.request_update()
                self._delay(cursor, now)
            else:
                by_leader.setdefault(leader.node, []).append(cursor)
        requests = tuple(self._request(node, cursors) for node, cursors in by_leader.items())
        wait = min((max(0.0, c.not_before - now) for c in waiting if not c.in_flight), default=NEVER)
        return Poll(requests, wait)

    def _notice_new_leaders(self) -> None:
        for cursor in self._cursors:
            if cursor.phase is not Phase.FETCHING:
                continue
            leader = self._metadata.cluster.leadership(cursor.partition)
            if leader is None or leader.epoch <= cursor.leader_epoch:
                continue
            if cursor.epoch < 0 or cursor.epoch == leader.epoch:
                cursor.leader_epoch = leader.epoch  # nothing read yet, or read in this epoch
            elif not cursor.in_flight:
                cursor.to(Phase.AWAIT_VALIDATION)

    def _request(self, node: NodeId, cursors: list[Cursor]) -> UnsentRequest:
        wanted: dict[TopicPartition, tuple[int, int]] = {}
        for cursor in cursors:
            cursor.in_flight = True
            wanted[cursor.partition] = (self._leader_epoch(cursor), cursor.epoch)
        return UnsentRequest(
            api=ApiKey.OFFSET_FOR_LEADER_EPOCH,
            build=lambda version: epoch_request(version, wanted),
            on_response=lambda response, now: self._on_response(cursors, wanted, response, now),
            on_failure=lambda error, now: self._on_failure(cursors, error, now),
            node=node,
            at_least=EPOCH_AT_LEAST,
        )

    def _leader_epoch(self, cursor: Cursor) -> LeaderEpoch:
        leader = self._metadata.cluster.leadership(cursor.partition)
        return leader.epoch if leader else LeaderEpoch(-1)

    def _on_response(
        self, cursors: list[Cursor], wanted: dict[TopicPartition, tuple[int, int]], response: Any, now: float
    ) -> None:
        answers = {
            TopicPartition(str(topic.topic), int(p.partition)): p for topic in response.topics for p in topic.partitions
        }
        for cursor in cursors:
            cursor.in_flight = False
            if self._cursors.get(cursor.partition) is not cursor or cursor.phase is not Phase.AWAIT_VALIDATION:
                continue
            answer = answers.get(cursor.partition)
            if answer is None:
                self._delay(cursor, now)
            elif int(answer.error_code):
                error = broker_error(int(answer.error_code), f"OffsetForLeaderEpoch of {cursor.partition}")
                self._refused(cursor, error, now)
            else:
                self._judge(cursor, LeaderEpoch(wanted[cursor.partition][0]), answer, now)

    def _judge(self, cursor: Cursor, leader_epoch: LeaderEpoch, answer: Any, now: float) -> None:
        end, epoch = int(answer.end_offset), int(answer.leader_epoch)
        cursor.retries = 0
        if end >= cursor.offset and epoch >= 0:
            cursor.leader_epoch = leader_epoch
            cursor.to(Phase.FETCHING)
            return
        known = end >= 0 and epoch >= 0
        self._on_truncation(Truncation(cursor, At(Offset(end), LeaderEpoch(epoch)) if known else None))
        if cursor.phase is Phase.AWAIT_VALIDATION:  # no decision: the offset itself is not certain yet
            self._delay(cursor, now)

    def _on_failure(self, cursors: list[Cursor], error: MultilaneError, now: float) -> None:
        for cursor in cursors:
            cursor.in_flight = False
            if self._cursors.get(cursor.partition) is cursor and cursor.phase is Phase.AWAIT_VALIDATION:
                self._refused(cursor, error, now)

    def _refused(self, cursor: Cursor, error: MultilaneError, now: float) -> None:
        if error.refresh_metadata:
            self._metadata.request_update()
        if isinstance(error, UnsupportedVersion):  # brokers before 2.7 do not offer the request
            cursor.leader_epoch = self._leader_epoch(cursor)
            cursor.to(Phase.FETCHING)
        elif error.retriable or error.fatal:
            if not error.retriable:
                self._on_login_refused(error)
            self._delay(cursor, now)
        else:
            self._on_refused(cursor, error)

    def _delay(self, cursor: Cursor, now: float) -> None:
        cursor.retries += 1
        cursor.not_before = now + self._backoff.delay(cursor.retries)
