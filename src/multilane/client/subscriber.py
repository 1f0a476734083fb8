"""The application side of a consumer's group: subscriptions and rebalance steps.

Thread: application (the thread or task that uses the consumer, one at a time).

Owns the rebalance listener, and decides when `OffsetCommits` commits by itself. Records of a poll count as processed
when the application polls again, releases their partition or closes, never before. Reads positions from
`ConsumerState`. Never waits itself (see `blocking_calls`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from concurrent.futures import Future
from math import inf
from typing import TYPE_CHECKING, Any

from multilane.client.blocking_calls import BlockingCall, wait_quietly
from multilane.client.blocks import Blocks
from multilane.client.events import (
    CommitAnswered,
    CommitOffsets,
    GroupEvent,
    GroupLeft,
    Leave,
    PollResumed,
    Rejoin,
    RevocationCommitted,
    StepDone,
    Subscribe,
)
from multilane.client.group.membership import Change, Identity, RebalanceStep
from multilane.client.group.wanted_topics import NOTHING, WantedTopics, wanted_from
from multilane.client.offset_commits import OffsetCommits
from multilane.client.pace import PollPace
from multilane.client.rebalance import RebalanceListener, checked_listener
from multilane.config.tuning import of_handling, of_settings
from multilane.errors import CommitRefused, ConcurrentUse, WrongSubscription
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.client.consumer_state import ConsumerState
    from multilane.types import TopicPartition

log = logger(__name__)


class Subscriber:
    def __init__(self, state: ConsumerState, now: Callable[[], float]) -> None:
        self._state = state
        self._config = state.config.group
        self._timeout = state.config.connection.default_api_timeout
        self._poll_activity = state.poll_activity
        self._pace = PollPace(self._config.max_poll_interval)
        self._now = now
        self._listener = RebalanceListener()
        self._subscription: WantedTopics | None = None
        self._calling_back = False
        self.commits = OffsetCommits(state, now, lambda: self._subscription is not None, self._call)
        self._auto = self.commits.auto
        self._leaves = 0  # Leave events that the network thread has not confirmed yet
        self._committing_step: RebalanceStep | None = None
        self._slowest = 0.0  # the longest absence that was logged
        for advice in of_settings(self._config) if self._config.group_id is not None else ():
            log.warning("group %s: %s", self._config.group_id, advice)

    # --- subscriptions -----------------------------------------------------------------------------------------------

    @property
    def subscription(self) -> WantedTopics | None:
        """The subscribed topic names or pattern; None without a subscription."""
        return self._subscription

    @property
    def identity(self) -> Identity | None:
        return self._state.member_status.identity

    @property
    def may_deliver(self) -> bool:
        """Whether records may be handed out now."""
        return self.may_deliver_at(self._now())

    def may_deliver_at(self, now: float) -> bool:
        """Manually assigned partitions need no membership."""
        return self._subscription is None or self._state.member_status.holds(now)

    def subscribe(self, wanted: Any, listener: RebalanceListener | None) -> None:
        if self._config.group_id is None:
            raise WrongSubscription("subscribe() needs a group: set group.id, or use assign() without one")
        checked = checked_listener(listener)
        topics = wanted_from(wanted, without_internal=self._state.config.exclude_internal_topics)
        if topics == NOTHING:
            raise WrongSubscription("the subscription is empty; to end a subscription, await unsubscribe()")
        if self._subscription is None and self._state.assignment:
            raise WrongSubscription("partitions were assigned with assign(): call assign([]) before subscribe()")
        if self._subscription is None:
            self._poll_activity.note(
                self._now(), is_polling=self._poll_activity.is_polling
            )  # subscribing counts as a sign of life
        self._listener = checked
        self._subscription = topics
        self._send(Subscribe(topics))

    def unsubscribe(self) -> BlockingCall[None]:
        """Release all partitions and leave the group, without waiting for its response."""
        if self._subscription is None:
            self.commits.auto_commit_in_background()
            self._remove_partitions(self._state.assignment)
            return
        try:
            yield from self._end_membership(self._now() + self._timeout)
        finally:  # whatever the application's code raises
            self._leave()

    def before_assigning(self) -> None:
        """Auto-commit the positions of the current partitions before a manual assignment."""
        if self._subscription is not None:
            raise WrongSubscription("this consumer has a subscription: call unsubscribe() before assign()")
        self.commits.auto_commit_in_background()

    def enforce_rebalance(self, reason: str) -> None:
        if self._subscription is None:
            raise WrongSubscription("enforce_rebalance() needs a subscription: call subscribe() first")
        self._send(Rejoin(reason))

    # --- while polling -----------------------------------------------------------------------------------------------

    def enter_poll(self) -> None:
        if self._calling_back:
            raise ConcurrentUse("poll() must not be called from a rebalance or commit callback")
        now = self._now()
        absence = self._poll_activity.note(now, is_polling=True)
        self._pace.polled_again(absence)
        if self._subscription is not None:
            self._check_absence(absence)
        self._state.begin_poll()
        if self._auto.is_due(now):
            self.commits.auto_commit_in_background()

    def enter_record(self) -> float:
        """A loop takes its next record: the one before is processed, and the application is alive. Returns the time."""
        now = self._now()
        if self._poll_activity.note(now, is_polling=False) > self._config.max_poll_interval:
            self._send(PollResumed())  # the poll that follows measures no absence
        if self._auto.is_due(now):
            self.commits.auto_commit_in_background()
        self._state.polls += 1
        return now

    def _check_absence(self, seconds: float) -> None:
        if seconds > self._config.max_poll_interval:
            self._send(PollResumed())
        if seconds > 2 * self._slowest:  # not at every poll, but again when it gets much worse
            for advice in of_handling(self._config, seconds):
                self._slowest = seconds
                log.warning("group %s: %s", self._config.group_id, advice)

    def collect(self) -> Blocks:
        """Hands out nothing while the consumer is not a valid member: other members may own the buffered partitions
        already, and the step that reports the loss is still to come."""
        self._state.check_open()
        if not self.may_deliver:
            return Blocks()
        chosen = self._state.config.max_poll_records
        blocks = self._state.collect(self._pace.limit if chosen is None and self._subscription is not None else chosen)
        self._pace.handed_out(blocks.rows)
        return blocks

    def leave_poll(self) -> None:
        self._poll_activity.note(self._now(), is_polling=False)

    def handle(self, event: RebalanceStep | CommitAnswered | RevocationCommitted | GroupLeft) -> BlockingCall[None]:
        if isinstance(event, CommitAnswered):
            yield from self.commits.answered(event.future)
        elif isinstance(event, RevocationCommitted):
            yield from self._continue_step(event)
        elif isinstance(event, GroupLeft):
            self._leaves -= 1
        elif self._leaves == 0:  # else the step is older than our Leave
            yield from self._perform(event)

    def _perform(self, step: RebalanceStep) -> BlockingCall[None]:
        log.info("partitions %s: %s", step.change.value, ", ".join(map(str, sorted(step.partitions))) or "none")
        if step.change is not Change.REVOKED or not self._commit_before_revoke(step):
            yield from self._finish(step)

    def _commit_before_revoke(self, step: RebalanceStep) -> bool:
        """Auto-commit revoked partitions before the listener is called. Nothing waits for the commit: records of the
        remaining partitions are handed out meanwhile."""
        consumed = self._state.consumed(step.partitions)
        if not consumed or not self.commits.is_automatic:
            return False
        self._state.withhold(step.partitions)
        self._committing_step = step
        future: Future[None] = Future()
        future.add_done_callback(lambda f: self._state.background.put(RevocationCommitted(step, f.exception())))
        self._send(CommitOffsets(consumed, self._commit_deadline(step), future))
        return True

    def _continue_step(self, committed: RevocationCommitted) -> BlockingCall[None]:
        if self._committing_step is not committed.step:
            return  # this consumer left the group meanwhile
        self._committing_step = None
        if committed.error is not None:
            count = len(committed.step.partitions)
            log.warning("could not commit the offsets of %d partitions: %s", count, committed.error)
        yield from self._finish(committed.step)

    def _finish(self, step: RebalanceStep) -> BlockingCall[None]:
        try:
            match step.change:
                case Change.ASSIGNED:
                    self._state.add_partitions(step.partitions)
                    yield from self._call(self._listener.on_assigned, step.partitions)
                case Change.REVOKED:
                    yield from self._revoke(step.partitions)
                    yield from self.commits.await_answers(self._commit_deadline(step))
                case Change.LOST:
                    yield from self._lose(step.partitions)
        finally:  # whatever the application's code raises, the group must not wait for this member
            if step.change is not Change.ASSIGNED:
                self._remove_partitions(step.partitions)
            self._send(StepDone(step.ticket))

    def _revoke(self, partitions: frozenset[TopicPartition]) -> BlockingCall[None]:
        """A consumer that is no longer a member has lost its partitions, even before a step reports it."""
        if self.identity is None:
            yield from self._lose(partitions)
        else:
            yield from self._call(self._listener.on_revoked, partitions)

    def _lose(self, partitions: frozenset[TopicPartition]) -> BlockingCall[None]:
        try:
            yield from self._call(self._listener.on_lost, partitions)
        except CommitRefused as error:  # by default on_lost calls on_revoked, which may commit
            log.warning("on_lost() could not commit: %s", error)

    def _commit_deadline(self, step: RebalanceStep) -> float:
        """The deadline for commits of revoked partitions. It leaves time to report the revocation to the group."""
        now = self._now()
        return now + min(self._timeout, max(0.0, step.deadline - now) / 2)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> BlockingCall[None]:
        """Call the application's code. Its time does not count as polling: a callback that hangs is not alive."""
        calling_back, is_polling = self._calling_back, self._poll_activity.is_polling
        self._calling_back = True
        self._poll_activity.note(self._now(), is_polling=False)
        try:
            answer = function(*arguments)
            if inspect.isawaitable(answer):
                yield answer
        finally:
            self._calling_back = calling_back
            self._poll_activity.note(self._now(), is_polling=is_polling)

    # --- leaving -----------------------------------------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        return self.commits.closes_at != inf

    def close(self, deadline: float, *, keep_last: bool) -> BlockingCall[None]:
        """Commit, call the listener and leave the group. With `keep_last` the rows of the last poll are not committed:
        the application failed before it had processed them."""
        if self._config.group_id is None:
            return
        self.commits.closes_at = deadline
        try:
            yield from self._end_membership(deadline, keep_last=keep_last)
        finally:
            left = self._leave()
        yield from wait_quietly(left, deadline)

    def _end_membership(self, deadline: float, *, keep_last: bool = False) -> BlockingCall[None]:
        self._committing_step = None
        assignment = self._state.assignment
        consumed = self._state.consumed_before_last_poll(assignment) if keep_last else self._state.consumed(assignment)
        yield from self.commits.auto_commit_and_wait(consumed, deadline)
        subscribed, self._subscription = self._subscription is not None, None
        try:
            if subscribed and assignment:
                yield from self._revoke(assignment)
            yield from self.commits.await_answers(deadline)
        finally:
            self._remove_partitions(assignment)
            self._state.forget_steps()

    def _remove_partitions(self, partitions: frozenset[TopicPartition]) -> None:
        self._state.remove_partitions(partitions)
        self._auto.forget(partitions)

    def _leave(self) -> Future[None]:
        left: Future[None] = Future()
        self._leaves += 1
        self._send(Leave(left))
        return left

    def raise_refusal(self) -> None:
        """If the group refused this member, raise the refusal at every poll that would return nothing."""
        refusal = self._state.member_status.refusal
        if refusal is not None and self._leaves == 0 and self._subscription is not None:
            raise refusal.with_traceback(None)

    def _send(self, event: GroupEvent) -> None:
        self._state.send_to_group(event)
