"""The application side of commits: those that the application asks for, and automatic ones.

Thread: application (the thread or task that uses the consumer, one at a time).

Owns the commits that are not answered yet. Reads positions from `ConsumerState`. Never commits a partition that is not
assigned, and never waits itself (see `blocking_calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from math import inf
from typing import TYPE_CHECKING, Any

from multilane.client.arguments import checked_commit, checked_partitions, seconds
from multilane.client.auto_commit import AutoCommit
from multilane.client.blocking_calls import BlockingCall, Wait, wait_quietly
from multilane.client.events import CommitAnswered, CommitOffsets, FetchCommitted
from multilane.client.group.commit_queue import Offsets
from multilane.errors import CommitRefused, GroupError, MultilaneError
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.client.consumer_state import ConsumerState
    from multilane.types import OffsetAndMetadata, TopicPartition

log = logger(__name__)

CommitCallback = Callable[[Offsets, BaseException | None], object]


class OffsetCommits:
    def __init__(
        self,
        state: ConsumerState,
        now: Callable[[], float],
        is_subscribed: Callable[[], bool],
        call: Callable[..., BlockingCall[None]],
    ) -> None:
        """`call` calls a function of the application, with arguments."""
        self._state = state
        self._config = state.config.group
        self._timeout = state.config.connection.default_api_timeout
        self._now = now
        self._is_subscribed = is_subscribed
        self._call = call
        self.auto = AutoCommit(self._config.auto_commit_interval, now())
        self._unanswered: dict[Future[None], tuple[Offsets, CommitCallback | None]] = {}
        self.closes_at = inf  # bounds a listener's commits during close()

    def commit(self, offsets: Mapping[Any, Any] | None, timeout: float | None) -> BlockingCall[None]:
        wanted = self._to_commit(offsets)
        if wanted:
            deadline = min(self.closes_at, self._now() + (self._timeout if timeout is None else seconds(timeout)))
            future: Future[None] = Future()
            self._state.send_to_group(CommitOffsets(wanted, deadline, future))
            yield Wait(future, deadline, is_interruptible=True)

    def commit_async(self, offsets: Mapping[Any, Any] | None, callback: CommitCallback | None) -> None:
        self._commit_in_background(self._to_commit(offsets), callback)

    def _commit_in_background(self, wanted: Offsets, callback: CommitCallback | None) -> None:
        if not wanted:
            return
        future: Future[None] = Future()
        self._unanswered[future] = wanted, callback
        future.add_done_callback(lambda f: self._state.background.put(CommitAnswered(f)))
        self._state.send_to_group(CommitOffsets(wanted, None, future))

    def answered(self, future: Future[None]) -> BlockingCall[None]:
        offsets, callback = self._unanswered.pop(future, ({}, None))
        error = future.exception()
        if callback is not None:
            yield from self._call(callback, offsets, error)
        elif error is not None and offsets:
            self.auto.failed()
            log.warning("commit failed: %s", error)

    def committed(
        self, partitions: Iterable[Any], timeout: float | None
    ) -> BlockingCall[dict[TopicPartition, OffsetAndMetadata | None]]:
        self._needs_group("committed()")
        deadline = self._now() + (self._timeout if timeout is None else seconds(timeout))
        future: Future[Mapping[TopicPartition, OffsetAndMetadata | None]] = Future()
        self._state.send_to_group(FetchCommitted(checked_partitions(partitions), deadline, future))
        found = yield Wait(future, deadline, is_interruptible=True)
        return dict(found)

    def _to_commit(self, offsets: Mapping[Any, Any] | None) -> Offsets:
        self._needs_group("commit()")
        if offsets is None:
            return self._state.consumed(self._state.assignment)
        wanted = checked_commit(offsets)
        self.auto.forget(wanted)
        unassigned = sorted(wanted.keys() - self._state.assignment) if self._is_subscribed() else []
        if unassigned:
            raise CommitRefused(f"{unassigned[0]} is not assigned to this consumer: commit only assigned partitions")
        return wanted

    def _needs_group(self, what: str) -> None:
        if self._config.group_id is None:
            raise GroupError(f"{what} needs a group: set group.id")

    def auto_commit_in_background(self) -> None:
        if self.is_automatic:
            self._commit_in_background(self.auto.changed(self._state.consumed(self._state.assignment)), None)

    @property
    def is_automatic(self) -> bool:
        return self._config.enable_auto_commit and self._config.group_id is not None

    def auto_commit_and_wait(self, consumed: Offsets, until: float) -> BlockingCall[None]:
        if not consumed or not self.is_automatic:
            return
        future: Future[None] = Future()
        self._state.send_to_group(CommitOffsets(consumed, until, future))
        try:
            yield Wait(future, until)
        except (MultilaneError, FutureTimeout) as error:
            log.warning("could not commit the offsets of %d partitions: %s", len(consumed), error)

    def await_answers(self, deadline: float) -> BlockingCall[None]:
        """Wait for asynchronous commits, which would be dropped with their partitions."""
        for future in list(self._unanswered):
            yield from wait_quietly(future, deadline)
            if future.done():
                yield from self.answered(future)
