"""Keeps the members of a run going: starts their jobs, hears them, starts again what ended by itself, and drains.

Thread: whoever calls `run`, which owns all state; lines, jobs and `stop` only put something on its queue.

When a member tells that it cannot run at all, or there is no slot for it, the others are ended in order and `run`
raises: nobody has served before all were ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from multilane.clock import Clock, SystemClock
from multilane.engines.channel.channel import Message, MessageChannel
from multilane.engines.channel.inbox import DriverInbox
from multilane.engines.continuous.roster import MemberAction, Order, Roster, SparkMemberState
from multilane.engines.continuous.worker import REFUSED, STARTING, MemberTaskPlan
from multilane.errors import MemberFailed, MultilaneError, SparkStartError
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.lanes.progress import Progress
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.spark.executor_news import hear_no_more, with_cause
from multilane.spark.first_slot import LONGER, START_SECONDS
from multilane.spark.reasons import reason

log = logger(__name__)

_FIRST_TRIES: Final = 2  # jobs of a member that fail before all are ready; Spark tries each four times
_TRIES: Final = 8  # later: some three minutes
_CUT_SECONDS: Final = 30.0


class MemberJobs(Protocol):
    """What runs tasks: Spark."""

    def start(self, plan: MemberTaskPlan, on_end: Callable[[Exception | None], object]) -> None: ...

    def cancel(self, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class MemberRunPlan:
    """What is to run, and how long is waited for it."""

    members: int
    factory: str
    target: str
    home: str
    bind: str = "127.0.0.1"
    host: str = "127.0.0.1"  # as executors reach this process
    log_level: str = "INFO"
    start_seconds: float = START_SECONDS  # until all members are ready
    drain_seconds: float = 90.0  # until those that were told to end are cancelled


class Supervisor:
    """For one run. It may be told to stop before that begins."""

    _plan: MemberRunPlan
    _jobs: MemberJobs
    _roster: Roster
    _address: tuple[str, int]

    def __init__(self, clock: Clock | None = None, observer: Observer = NO_OBSERVER) -> None:
        self._clock = clock or SystemClock()
        self._lease_table = DriverInbox("member", self._clock)
        self._failure: MultilaneError | None = None
        self._deadline: float | None = None  # for the start, then for the drain
        self._is_cutting = False  # those that did not end in time were cancelled
        self._unready: Counter[int] = Counter()  # jobs in a row that failed before their member was ready
        self._last_error = ""
        self._steering: dict[str, ConsumerOverrides] = {}
        self.progress = Progress(observer, self._clock)

    # --- life --------------------------------------------------------------------------------------------------------

    def run(self, plan: MemberRunPlan, jobs: MemberJobs) -> None:
        """Until `stop` and every member has ended, or something is wrong that starting again does not mend."""
        self._plan, self._jobs, self._roster = plan, jobs, Roster(plan.members)
        self._address = self._lease_table.open(plan.bind, plan.host, plan.members, self)
        now = self._clock.monotonic()
        self.progress.begin(now)
        self._deadline = now + self._plan.start_seconds
        try:
            self._carry_out(self._roster.begin())
            while not self._roster.is_over:
                due = (self._deadline, self._roster.next_due(), self.progress.due)
                self._lease_table.turn(min(at for at in due if at is not None))
                self._look_at_the_clock()
            self._lease_table.hear_out()
        finally:
            self._lease_table.close()
            self.progress.close(self._clock.monotonic())
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """From any thread, also from a signal handler."""
        self._lease_table.put(self._drain)

    def steer(self, consumer: str, steering: ConsumerOverrides) -> None:
        """From any thread; members that are started later are told too."""
        self._lease_table.put(partial(self._steer, consumer, steering))

    def _steer(self, consumer: str, steering: ConsumerOverrides) -> None:
        self._steering[consumer] = steering
        for number in self._lease_table:
            self._lease_table.say(number, "steer", consumer=consumer, steering=steering.to_json())

    def _look_at_the_clock(self) -> None:
        now = self._clock.monotonic()
        self._carry_out(self._roster.due(now))
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            self._be_late()
        if now >= self.progress.due:
            self._tell_progress(now)

    def _be_late(self) -> None:
        late = self._roster.count(SparkMemberState.DRAINING)
        if self._is_cutting:
            raise SparkStartError(f"{late} jobs were cancelled and do not end: Spark seems to be gone")
        if self._roster.is_stopping:
            self._is_cutting = True
            self._deadline = self._clock.monotonic() + _CUT_SECONDS
            seconds = f"{self._plan.drain_seconds:g} s"
            self._failure = self._failure or MemberFailed(
                f"{late} members did not end within {seconds} and were cut off: what they were at is handled again"
            )
            self._cancel_draining()
        elif not self._roster.is_open:
            missing = self._roster.count(SparkMemberState.STARTING, SparkMemberState.WAITING)
            told = f"{missing} of {self._plan.members} members were not ready within {self._plan.start_seconds:g} s"
            advice = f"are there as many free slots? Ask for fewer members, or give Spark more cores. {LONGER}"
            self._fail(SparkStartError(with_cause(f"{told}: {self._last_error or advice}")))

    # --- what is to be done ------------------------------------------------------------------------------------------

    def _carry_out(self, orders: list[Order]) -> None:
        for do, number in orders:
            if do is MemberAction.START:
                self._start(number)
            elif do is MemberAction.CANCEL:
                self._jobs.cancel(number)
            else:
                self._lease_table.say(number, do.value)
                for consumer, steering in self._steering.items() if do is MemberAction.SERVE else ():
                    self._lease_table.say(number, "steer", consumer=consumer, steering=steering.to_json())

    def _start(self, number: int) -> None:
        plan, token = self._plan, self._lease_table.token
        self._lease_table.hang_up(number)  # on a job that has ended
        told = MemberTaskPlan(number, plan.factory, plan.target, plan.home, plan.log_level, self._address, token=token)
        try:
            self._jobs.start(told, lambda error: self._lease_table.put(partial(self._on_ended, number, error)))
        except Exception as error:
            raise SparkStartError(f"Spark takes no more jobs, it seems to be gone: {error}") from error

    def _drain(self) -> None:
        if not self._roster.is_stopping:
            self._deadline = self._clock.monotonic() + self._plan.drain_seconds
            self._carry_out(self._roster.stop())

    def _fail(self, failure: MultilaneError) -> None:
        self._failure = self._failure or failure
        self._drain()

    def _cancel_draining(self) -> None:
        for number in range(self._plan.members):
            if self._roster.state(number) is SparkMemberState.DRAINING:
                self._jobs.cancel(number)

    # --- what happens ------------------------------------------------------------------------------------------------

    def on_message(self, number: int, line: MessageChannel, message: Message) -> None:
        kind = message["kind"]
        if kind == "ready":
            self._on_ready(number, line, message)
        elif kind == "beat":
            self.progress.add(message.get("counts") or [], message.get("failures") or [], number)
        elif kind == "failed":
            self._on_failed(number, str(message.get("error")), str(message.get("stage")))

    def _on_ready(self, number: int, line: MessageChannel, message: Message) -> None:
        self._lease_table.connect(number, line)
        self._unready[number] = 0
        log.info("member %d is ready on %s, process %s", number, message.get("host"), message.get("pid"))
        was_open = self._roster.is_open
        self._carry_out(self._roster.ready(number, self._clock.monotonic()))
        if self._roster.is_open and not was_open and not self._roster.is_stopping:
            self._deadline = None
            hear_no_more()

    def on_unheard(self, number: int) -> None:
        self._roster.unheard(number)

    def _on_failed(self, number: int, error: str, stage: str) -> None:
        """Once all were ready, one that cannot start has a place that is not as the others are: that may pass."""
        if stage == REFUSED or (stage == STARTING and not self._roster.is_open):
            self._fail(MemberFailed(f"member {number} cannot run: {error}"))
        else:
            log.error("member %d failed: %s", number, error)

    def _on_ended(self, number: int, error: Exception | None) -> None:
        self.progress.forget(number)
        if error is not None and not self._roster.is_stopping:
            self._last_error = reason(error)
            log.error("the Spark job of member %d failed: %s", number, self._last_error)
            self._unready[number] += 1
            if self._unready[number] >= (_TRIES if self._roster.is_open else _FIRST_TRIES):
                self._fail(SparkStartError(with_cause(f"member {number} does not start on Spark: {self._last_error}")))
        wait = self._roster.ended(number, self._clock.monotonic())
        if wait is not None:
            log.warning("member %d ended by itself and is started again in %g s", number, wait)

    def _tell_progress(self, now: float) -> None:
        serving = self._roster.count(SparkMemberState.SERVING)
        self.progress.log_progress(now, f"{serving} of {self._plan.members} members serve; ")
