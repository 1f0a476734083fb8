"""The application side of a consumer's group: subscriptions, steps of a rebalance, commits.

Thread: application (whichever thread or task uses the consumer; one at a time).

Owns the listener, and when offsets are committed by themselves: what poll() handed out counts as done when the
application polls again, gives a partition up or closes, never before. Asks the front for positions; never waits itself
(see `plans`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from math import inf
from typing import TYPE_CHECKING, Any

from multilane.client.arguments import checked_commit, checked_partitions, seconds
from multilane.client.auto_commit import AutoCommit
from multilane.client.blocks import Blocks
from multilane.client.events import (
    CommitAnswered,
    CommitOffsets,
    CommittedFirst,
    FetchCommitted,
    GroupEvent,
    Leave,
    Parted,
    Rejoin,
    Returned,
    StepDone,
    Subscribe,
)
from multilane.client.group.membership import Change, Identity, RebalanceStep
from multilane.client.group.wanted_topics import NOTHING, WantedTopics, wanted_from
from multilane.client.pace import PollPace
from multilane.client.plans import Plan, Wait
from multilane.client.rebalance import RebalanceListener, checked_listener
from multilane.config.tuning import of_handling, of_settings
from multilane.errors import CommitRefused, ConcurrentUse, GroupError, MultilaneError, WrongSubscription
from multilane.logs import logger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multilane.client.consumer_state import ConsumerState
    from multilane.types import OffsetAndMetadata, TopicPartition

log = logger(__name__)

Offsets = Mapping["TopicPartition", "OffsetAndMetadata"]
CommitCallback = Callable[[Offsets, BaseException | None], object]


class Subscriber:
    def __init__(self, front: ConsumerState, now: Callable[[], float]) -> None:
        self._front = front
        self._config = front.config.group
        self._timeout = front.config.connection.default_api_timeout
        self._pulse = front.pulse
        self._pace = PollPace(self._config.max_poll_interval)
        self._now = now
        self._listener = RebalanceListener()
        self._subscription: WantedTopics | None = None
        self._calling_back = False
        self._auto = AutoCommit(self._config.auto_commit_interval, now())
        self._unanswered: dict[Future[None], tuple[Offsets, CommitCallback | None]] = {}
        self._leaves = 0  # of which the network thread has not heard yet, as far as we have
        self._closes_at = inf  # a commit in the last call of a listener waits no longer than close() may
        self._committing_first: RebalanceStep | None = None
        self._slowest = 0.0  # of what was advised about
        for advice in of_settings(self._config) if self._config.group_id is not None else ():
            log.warning("group %s: %s", self._config.group_id, advice)

    # --- subscriptions -----------------------------------------------------------------------------------------------

    @property
    def subscription(self) -> WantedTopics | None:
        """What is subscribed to: names or a pattern; None when nothing is."""
        return self._subscription

    @property
    def identity(self) -> Identity | None:
        return self._front.standing.identity

    @property
    def has_standing(self) -> bool:
        """Whether records may be handed out now."""
        return self.stands(self._now())

    def stands(self, now: float) -> bool:
        """Partitions that were assigned by hand need no standing."""
        return self._subscription is None or self._front.standing.holds(now)

    def subscribe(self, wanted: Any, listener: RebalanceListener | None) -> None:
        if self._config.group_id is None:
            raise WrongSubscription("subscribe() needs a group: set group.id, or use assign() without one")
        told = checked_listener(listener)
        wish = wanted_from(wanted, without_internal=self._front.config.exclude_internal_topics)
        if wish == NOTHING:
            raise WrongSubscription("the subscription is empty; to end a subscription, await unsubscribe()")
        if self._subscription is None and self._front.assignment:
            raise WrongSubscription("partitions were assigned with assign(): call assign([]) before subscribe()")
        if self._subscription is None:
            self._pulse.beat(self._now(), is_polling=self._pulse.is_polling)  # whoever begins is there
        self._listener = told
        self._subscription = wish
        self._tell(Subscribe(wish))

    def unsubscribe(self) -> Plan[None]:
        """Give everything up and leave; the group is told without waiting for its answer."""
        if self._subscription is None:
            self._commit_by_itself()
            self._give_up(self._front.assignment)
            return
        try:
            yield from self._part(self._now() + self._timeout)
        finally:  # whatever the application's code raises
            self._leave()

    def before_assigning(self) -> None:
        """Partitions are to be assigned by hand: what was read of the present ones is committed."""
        if self._subscription is not None:
            raise WrongSubscription("this consumer has a subscription: call unsubscribe() before assign()")
        self._commit_by_itself()

    def enforce_rebalance(self, reason: str) -> None:
        if self._subscription is None:
            raise WrongSubscription("enforce_rebalance() needs a subscription: call subscribe() first")
        self._tell(Rejoin(reason))

    # --- while polling -----------------------------------------------------------------------------------------------

    def enter_poll(self) -> None:
        if self._calling_back:
            raise ConcurrentUse("poll() must not be called from a rebalance or commit callback")
        now = self._now()
        absence = self._pulse.beat(now, is_polling=True)
        self._pace.returned(absence)
        if self._subscription is not None:
            self._note_absence(absence)
        self._front.begin_poll()
        if self._auto.is_due(now):
            self._commit_by_itself()

    def enter_record(self) -> float:
        """The next record of a loop: the one before is done with, and whoever asks is there. Returns the time."""
        now = self._now()
        if self._pulse.beat(now, is_polling=False) > self._config.max_poll_interval:
            self._tell(Returned())  # the poll that follows finds nobody away
        if self._auto.is_due(now):
            self._commit_by_itself()
        self._front.polls += 1
        return now

    def _note_absence(self, seconds: float) -> None:
        if seconds > self._config.max_poll_interval:
            self._tell(Returned())
        if seconds > 2 * self._slowest:  # not at each poll, but again when it gets much worse
            for advice in of_handling(self._config, seconds):
                self._slowest = seconds
                log.warning("group %s: %s", self._config.group_id, advice)

    def collect(self) -> Blocks:
        """Without standing in its group a consumer gets nothing: what is buffered may be in others' hands already, and
        the step that says so is on its way."""
        self._front.check_open()
        if not self.has_standing:
            return Blocks()
        chosen = self._front.config.max_poll_records
        blocks = self._front.collect(self._pace.limit if chosen is None and self._subscription is not None else chosen)
        self._pace.handed_out(blocks.rows)
        return blocks

    def leave_poll(self) -> None:
        self._pulse.beat(self._now(), is_polling=False)

    def attend(self, event: RebalanceStep | CommitAnswered | CommittedFirst | Parted) -> Plan[None]:
        if isinstance(event, CommitAnswered):
            yield from self._answered(event.future)
        elif isinstance(event, CommittedFirst):
            yield from self._go_on(event)
        elif isinstance(event, Parted):
            self._leaves -= 1
        elif self._leaves == 0:  # else the network thread did not know yet that we leave when it asked for this step
            yield from self._perform(event)

    def _perform(self, step: RebalanceStep) -> Plan[None]:
        log.info("partitions %s: %s", step.change.value, ", ".join(map(str, sorted(step.partitions))) or "none")
        if step.change is not Change.REVOKED or not self._commit_first(step):
            yield from self._finish(step)

    def _commit_first(self, step: RebalanceStep) -> bool:
        """What is given up is committed before the listener hears of it. Nobody waits for that: what we keep is handed
        out meanwhile."""
        consumed = self._front.consumed(step.partitions)
        if not consumed or not self._commits_itself:
            return False
        self._front.hold(step.partitions)
        self._committing_first = step
        future: Future[None] = Future()
        future.add_done_callback(lambda f: self._front.background.put(CommittedFirst(step, f.exception())))
        self._tell(CommitOffsets(consumed, self._patience(step), future))
        return True

    def _go_on(self, committed: CommittedFirst) -> Plan[None]:
        if self._committing_first is not committed.step:
            return  # we left meanwhile
        self._committing_first = None
        if committed.error is not None:
            many = len(committed.step.partitions)
            log.warning("could not commit the offsets of %d partitions: %s", many, committed.error)
        yield from self._finish(committed.step)

    def _finish(self, step: RebalanceStep) -> Plan[None]:
        try:
            match step.change:
                case Change.ASSIGNED:
                    self._front.begin_with(step.partitions)
                    yield from self._call(self._listener.on_assigned, step.partitions)
                case Change.REVOKED:
                    yield from self._take_leave(step.partitions)
                    yield from self._await_answers(self._patience(step))
                case Change.LOST:
                    yield from self._take_loss(step.partitions)
        finally:  # whatever the application's code raises, the group must not wait for us
            if step.change is not Change.ASSIGNED:
                self._give_up(step.partitions)
            self._tell(StepDone(step.ticket))

    def _take_leave(self, partitions: frozenset[TopicPartition]) -> Plan[None]:
        """Who is no member any more has lost them, though no step has said so yet."""
        if self.identity is None:
            yield from self._take_loss(partitions)
        else:
            yield from self._call(self._listener.on_revoked, partitions)

    def _take_loss(self, partitions: frozenset[TopicPartition]) -> Plan[None]:
        try:
            yield from self._call(self._listener.on_lost, partitions)
        except CommitRefused as error:  # most listeners are written for revocations, and on_lost does the same
            log.warning("on_lost() could not commit: %s", error)

    def _patience(self, step: RebalanceStep) -> float:
        """Until when to wait for commits of what is given up: the group must still hear in time that it is."""
        now = self._now()
        return now + min(self._timeout, max(0.0, step.deadline - now) / 2)

    def _call(self, function: Callable[..., Any], *arguments: Any) -> Plan[None]:
        """Code of the application's, whose time counts as its own: a call that never ends is no poll."""
        calling_back, is_polling = self._calling_back, self._pulse.is_polling
        self._calling_back = True
        self._pulse.beat(self._now(), is_polling=False)
        try:
            answer = function(*arguments)
            if inspect.isawaitable(answer):
                yield answer
        finally:
            self._calling_back = calling_back
            self._pulse.beat(self._now(), is_polling=is_polling)

    # --- commits -----------------------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[Any, Any] | None, timeout: float | None) -> Plan[None]:
        wanted = self._to_commit(offsets)
        if wanted:
            deadline = min(self._closes_at, self._now() + (self._timeout if timeout is None else seconds(timeout)))
            future: Future[None] = Future()
            self._tell(CommitOffsets(wanted, deadline, future))
            yield Wait(future, deadline, is_interruptible=True)

    def commit_async(self, offsets: Mapping[Any, Any] | None, callback: CommitCallback | None) -> None:
        self._send_in_passing(self._to_commit(offsets), callback)

    def _send_in_passing(self, wanted: Offsets, callback: CommitCallback | None) -> None:
        if not wanted:
            return
        future: Future[None] = Future()
        self._unanswered[future] = wanted, callback
        future.add_done_callback(lambda f: self._front.background.put(CommitAnswered(f)))
        self._tell(CommitOffsets(wanted, None, future))

    def _answered(self, future: Future[None]) -> Plan[None]:
        offsets, callback = self._unanswered.pop(future, ({}, None))
        error = future.exception()
        if callback is not None:
            yield from self._call(callback, offsets, error)
        elif error is not None and offsets:
            self._auto.failed()
            log.warning("commit failed: %s", error)

    def committed(
        self, partitions: Iterable[Any], timeout: float | None
    ) -> Plan[dict[TopicPartition, OffsetAndMetadata | None]]:
        self._needs_group("committed()")
        deadline = self._now() + (self._timeout if timeout is None else seconds(timeout))
        future: Future[Mapping[TopicPartition, OffsetAndMetadata | None]] = Future()
        self._tell(FetchCommitted(checked_partitions(partitions), deadline, future))
        found = yield Wait(future, deadline, is_interruptible=True)
        return dict(found)

    def _to_commit(self, offsets: Mapping[Any, Any] | None) -> Offsets:
        self._needs_group("commit()")
        if offsets is None:
            return self._front.consumed(self._front.assignment)
        wanted = checked_commit(offsets)
        self._auto.forget(wanted)
        strange = sorted(wanted.keys() - self._front.assignment) if self._subscription is not None else []
        if strange:
            raise CommitRefused(f"{strange[0]} is not assigned to this consumer: commit only assigned partitions")
        return wanted

    def _needs_group(self, what: str) -> None:
        if self._config.group_id is None:
            raise GroupError(f"{what} needs a group: set group.id")

    def _commit_by_itself(self) -> None:
        if self._commits_itself:
            self._send_in_passing(self._auto.news(self._front.consumed(self._front.assignment)), None)

    @property
    def _commits_itself(self) -> bool:
        return self._config.enable_auto_commit and self._config.group_id is not None

    def _auto_commit(self, consumed: Offsets, until: float) -> Plan[None]:
        if not consumed or not self._commits_itself:
            return
        future: Future[None] = Future()
        self._tell(CommitOffsets(consumed, until, future))
        try:
            yield Wait(future, until)
        except (MultilaneError, FutureTimeout) as error:
            log.warning("could not commit the offsets of %d partitions: %s", len(consumed), error)

    # --- parting -----------------------------------------------------------------------------------------------------

    @property
    def is_closing(self) -> bool:
        return self._closes_at != inf

    def close(self, deadline: float, *, keep_last: bool) -> Plan[None]:
        """Commit, let the listener know, and leave the group. With `keep_last` what the last poll handed out is not
        committed: the application failed before it was done with it."""
        if self._config.group_id is None:
            return
        self._closes_at = deadline
        try:
            yield from self._part(deadline, keep_last=keep_last)
        finally:
            left = self._leave()
        yield from self._patiently(left, deadline)

    def _part(self, deadline: float, *, keep_last: bool = False) -> Plan[None]:
        self._committing_first = None
        assignment = self._front.assignment
        consumed = self._front.returned(assignment) if keep_last else self._front.consumed(assignment)
        yield from self._auto_commit(consumed, deadline)
        subscribed, self._subscription = self._subscription is not None, None
        try:
            if subscribed and assignment:
                yield from self._take_leave(assignment)
            yield from self._await_answers(deadline)
        finally:
            self._give_up(assignment)
            self._front.forget_steps()

    def _give_up(self, partitions: frozenset[TopicPartition]) -> None:
        self._front.give_up(partitions)
        self._auto.forget(partitions)

    def _leave(self) -> Future[None]:
        left: Future[None] = Future()
        self._leaves += 1
        self._tell(Leave(left))
        return left

    def _await_answers(self, deadline: float) -> Plan[None]:
        """Commits that nobody waited for: once their partitions are given up they would be dropped."""
        for future in list(self._unanswered):
            yield from self._patiently(future, deadline)
            if future.done():
                yield from self._answered(future)

    def _patiently(self, future: Future[None], deadline: float) -> Plan[None]:
        """Wait, but not for a verdict: whoever asked for that has it."""
        try:
            yield Wait(future, deadline, is_kept=False)
        except (MultilaneError, FutureTimeout):
            return

    def raise_refusal(self) -> None:
        """A group that will not have us says so again, whenever a poll would come back empty."""
        refusal = self._front.standing.refusal
        if refusal is not None and self._leaves == 0 and self._subscription is not None:
            raise refusal.with_traceback(None)

    def _tell(self, event: GroupEvent) -> None:
        self._front.tell_group(event)
