"""Supervises the members of a run: starts their jobs, handles their messages, restarts the ones that end, and drains.

Thread: the caller of `run`, which owns all state; channels, jobs and `stop` only put events into its inbox.

When a member cannot run at all, or there is no slot for it, the others are stopped cleanly and `run` raises. No member
has served by then: serving begins when all are ready.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final, Protocol

from multilane.clock import Clock, SystemClock
from multilane.engines.channel.channel import ChannelMessage, MessageChannel
from multilane.engines.channel.inbox import DriverInbox
from multilane.engines.continuous.messages import FailureStage, FromMember, ToMember
from multilane.engines.continuous.roster import Order, Roster
from multilane.engines.continuous.states import MemberAction, SparkMemberState
from multilane.engines.continuous.worker import MemberTaskSpec
from multilane.errors import MemberFailed, MultilaneError, SparkStartError
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.lanes.progress import Progress
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.spark.executor_news import unwatch_executors, with_cause
from multilane.spark.first_slot import LONGER, START_SECONDS
from multilane.spark.reasons import reason

log = logger(__name__)

_FIRST_ATTEMPTS: Final = 2  # jobs of a member that may fail before all are ready; Spark itself retries each four times
_ATTEMPTS: Final = 8  # later: about three minutes
_CANCEL_SECONDS: Final = 30.0


class MemberJobs(Protocol):
    """Runs the tasks: Spark."""

    def start(self, spec: MemberTaskSpec, on_end: Callable[[Exception | None], object]) -> None: ...

    def cancel(self, number: int) -> None: ...


@dataclass(frozen=True, slots=True)
class MemberRunSpec:
    """What to run, and how long to wait for it."""

    members: int
    factory: str
    target: str
    home: str
    bind: str = "127.0.0.1"
    host: str = "127.0.0.1"  # as executors reach this process
    log_level: str = "INFO"
    start_seconds: float = START_SECONDS  # until all members are ready
    drain_seconds: float = 90.0  # from the request to stop until jobs are cancelled


class Supervisor:
    """For one run. `stop` may be called before `run`."""

    _spec: MemberRunSpec
    _jobs: MemberJobs
    _roster: Roster
    _address: tuple[str, int]

    def __init__(self, clock: Clock | None = None, observer: Observer = NO_OBSERVER) -> None:
        self._clock = clock or SystemClock()
        self._inbox = DriverInbox("member", self._clock)
        self._failure: MultilaneError | None = None
        self._deadline: float | None = None  # of the start, later of the drain
        self._is_cancelling = False  # jobs that did not end in time were cancelled
        self._failed_starts: Counter[int] = Counter()  # jobs in a row that failed before their member was ready
        self._last_error = ""
        self._overrides: dict[str, ConsumerOverrides] = {}
        self.progress = Progress(observer, self._clock)

    # --- life --------------------------------------------------------------------------------------------------------

    def run(self, spec: MemberRunSpec, jobs: MemberJobs) -> None:
        """Until `stop` and the end of every member, or until a permanent failure."""
        self._spec, self._jobs, self._roster = spec, jobs, Roster(spec.members)
        self._address = self._inbox.open(spec.bind, spec.host, spec.members, self)
        now = self._clock.monotonic()
        self.progress.begin(now)
        self._deadline = now + self._spec.start_seconds
        try:
            self._carry_out(self._roster.begin())
            while not self._roster.is_over:
                due = (self._deadline, self._roster.next_due(), self.progress.due)
                self._inbox.handle_next(min(at for at in due if at is not None))
                self._check_timers()
            self._inbox.drain()
        finally:
            self._inbox.close()
            self.progress.close(self._clock.monotonic())
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """From any thread, also from a signal handler."""
        self._inbox.put(self._drain)

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        """From any thread. Members that start later get them too."""
        self._inbox.put(partial(self._apply_overrides, consumer, overrides))

    def _apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        self._overrides[consumer] = overrides
        for number in self._inbox:
            self._inbox.send(number, ToMember.APPLY_OVERRIDES, consumer=consumer, steering=overrides.to_json())

    def _check_timers(self) -> None:
        now = self._clock.monotonic()
        self._carry_out(self._roster.due(now))
        if self._deadline is not None and now >= self._deadline:
            self._deadline = None
            self._on_deadline()
        if now >= self.progress.due:
            self._log_progress(now)

    def _on_deadline(self) -> None:
        draining = self._roster.count(SparkMemberState.DRAINING)
        if self._is_cancelling:
            raise SparkStartError(f"{draining} cancelled jobs are still running; Spark appears to be down")
        if self._roster.is_stopping:
            self._is_cancelling = True
            self._deadline = self._clock.monotonic() + _CANCEL_SECONDS
            seconds = f"{self._spec.drain_seconds:g} s"
            self._failure = self._failure or MemberFailed(
                f"{draining} members did not stop within {seconds} and were killed; records in flight will be "
                "redelivered"
            )
            self._cancel_draining()
        elif not self._roster.is_open:
            missing = self._roster.count(SparkMemberState.STARTING, SparkMemberState.WAITING)
            problem = f"{missing} of {self._spec.members} members were not ready within {self._spec.start_seconds:g} s"
            advice = f"are there as many free slots? Ask for fewer members, or give Spark more cores. {LONGER}"
            self._fail(SparkStartError(with_cause(f"{problem}: {self._last_error or advice}")))

    # --- actions -----------------------------------------------------------------------------------------------------

    def _carry_out(self, orders: list[Order]) -> None:
        for action, number in orders:
            if action is MemberAction.START:
                self._start(number)
            elif action is MemberAction.CANCEL:
                self._jobs.cancel(number)
            elif action is MemberAction.STOP:
                self._inbox.send(number, ToMember.STOP)
            else:
                self._inbox.send(number, ToMember.SERVE)
                for consumer, overrides in self._overrides.items():
                    self._inbox.send(number, ToMember.APPLY_OVERRIDES, consumer=consumer, steering=overrides.to_json())

    def _start(self, number: int) -> None:
        spec, token = self._spec, self._inbox.token
        self._inbox.disconnect(number)  # from a job that has ended
        task = MemberTaskSpec(
            spec.factory, spec.target, spec.home, spec.log_level, self._address, token=token, number=number
        )
        try:
            self._jobs.start(task, lambda error: self._inbox.put(partial(self._on_ended, number, error)))
        except Exception as error:
            raise SparkStartError(f"cannot submit jobs, Spark appears to be down: {error}") from error

    def _drain(self) -> None:
        if not self._roster.is_stopping:
            self._deadline = self._clock.monotonic() + self._spec.drain_seconds
            self._carry_out(self._roster.stop())

    def _fail(self, failure: MultilaneError) -> None:
        self._failure = self._failure or failure
        self._drain()

    def _cancel_draining(self) -> None:
        for number in range(self._spec.members):
            if self._roster.state(number) is SparkMemberState.DRAINING:
                self._jobs.cancel(number)

    # --- events ------------------------------------------------------------------------------------------------------

    def on_message(self, number: int, channel: MessageChannel, message: ChannelMessage) -> None:
        kind = message["kind"]
        if kind == FromMember.READY:
            self._on_ready(number, channel, message)
        elif kind == FromMember.REPORT:
            self.progress.add(message, number)
        elif kind == FromMember.FAILED:
            self._on_failed(number, str(message.get("error")), str(message.get("stage")))

    def _on_ready(self, number: int, channel: MessageChannel, message: ChannelMessage) -> None:
        self._inbox.connect(number, channel)
        self._failed_starts[number] = 0
        log.info("member %d is ready on %s, process %s", number, message.get("host"), message.get("pid"))
        was_open = self._roster.is_open
        self._carry_out(self._roster.ready(number, self._clock.monotonic()))
        if self._roster.is_open and not was_open and not self._roster.is_stopping:
            self._deadline = None
            unwatch_executors()

    def on_disconnect(self, number: int) -> None:
        self._roster.disconnected(number)

    def _on_failed(self, number: int, error: str, stage: str) -> None:
        """Once all were ready, a failed start is the fault of one executor, and may pass."""
        if stage == FailureStage.REFUSED or (stage == FailureStage.STARTING and not self._roster.is_open):
            self._fail(MemberFailed(f"member {number} cannot run: {error}"))
        else:
            log.error("member %d failed: %s", number, error)

    def _on_ended(self, number: int, error: Exception | None) -> None:
        self.progress.forget(number)
        if error is not None and not self._roster.is_stopping:
            self._last_error = reason(error)
            log.error("the Spark job of member %d failed: %s", number, self._last_error)
            self._failed_starts[number] += 1
            if self._failed_starts[number] >= (_ATTEMPTS if self._roster.is_open else _FIRST_ATTEMPTS):
                self._fail(SparkStartError(with_cause(f"cannot start member {number} on Spark: {self._last_error}")))
        wait = self._roster.ended(number, self._clock.monotonic())
        if wait is not None:
            log.warning("member %d ended unexpectedly, restarting it in %g s", number, wait)

    def _log_progress(self, now: float) -> None:
        serving = self._roster.count(SparkMemberState.SERVING)
        self.progress.log_progress(now, f"{serving} of {self._spec.members} members serve; ")
