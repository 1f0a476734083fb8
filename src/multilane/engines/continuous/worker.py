"""A task in a Spark worker: runs a member of the application until the driver stops it.

Thread: the worker's own runs the member; a second one receives from the driver, a third reports counts to it.

A factory makes the member. It is found by import path, in the application's home directory. The member begins when the
driver permits it, and stops in order when the driver says so or is gone: a member whose run is over takes no more
records. Its failure is sent to the driver and does not fail the task. Spark would retry the task at once, and the
supervisor knows better when. A process that dies is restarted by Spark.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from multilane.engines.channel.channel import MessageChannel, connect
from multilane.engines.continuous.messages import FailureStage, FromMember, ToMember
from multilane.engines.worker_environment import in_worker_environment, load
from multilane.errors import ConfigError
from multilane.lanes.consumer_overrides import ConsumerOverrides, overrides_from
from multilane.logs import logger
from multilane.metrics.observer import Count, Duration, Gauge
from multilane.spark.reasons import in_short

log = logger(__name__)

_REPORT_SECONDS: Final = 1.0


class Member(Protocol):
    """What a factory makes."""

    def run(self) -> None:
        """Until `stop`."""

    def stop(self) -> None:
        """In order; from any thread."""

    def steer(self, consumer: str, overrides: ConsumerOverrides) -> None:
        """From any thread, also before `run`."""

    def counts(self) -> list[Count | Duration]:
        """Increments since the last call; from any thread."""

    def gauges(self) -> list[Gauge] | None:
        """The current gauges; None if the member cannot tell. From any thread."""

    def failures(self) -> list[dict[str, Any]]:
        """Failures since the last call, for the driver's log; from any thread."""


@dataclass(frozen=True, slots=True)
class MemberTaskPlan:
    """Everything that a worker needs; Spark ships it inside the task."""

    number: int
    factory: str  # MODULE:NAME of the function that makes the member of the target
    target: str
    home: str  # the directory of the application's modules and files
    log_level: str
    address: tuple[str, int]
    token: str = field(repr=False)


def serve(plan: MemberTaskPlan, batches: Iterator[Any]) -> Iterator[Any]:
    """The task's function: yields one row when the member has ended, with how it ended."""
    import pyarrow as pa

    for _ in batches:
        pass  # the row that made Spark start a task
    how = _attend(plan)
    yield pa.RecordBatch.from_pydict({"member": pa.array([plan.number], pa.int32()), "ended": pa.array([how])})


def _attend(plan: MemberTaskPlan) -> str:
    logging.basicConfig(level=plan.log_level, format=f"%(asctime)s member {plan.number} %(levelname)s %(message)s")
    with ExitStack() as stack:
        channel = connect(plan.address, plan.token)
        stack.callback(channel.close)
        try:
            stack.enter_context(in_worker_environment(plan.home, plan.number))
            member: Member = load(plan.factory)(plan.target)
        except (Exception, SystemExit) as error:
            log.exception("cannot make the application in this worker")
            return _send_failure(channel, plan, error, stage=FailureStage.STARTING)
        return _run_member(plan, member, channel)


def _run_member(plan: MemberTaskPlan, member: Member, channel: MessageChannel) -> str:
    channel.send(FromMember.READY, number=plan.number, host=socket.gethostname(), pid=os.getpid())
    message = channel.receive()
    if message is None or message["kind"] != ToMember.SERVE:
        return "not needed"
    over = threading.Event()
    threading.Thread(target=_receive, args=(channel, member, over), name="multilane-driver", daemon=True).start()
    arguments = (channel, member, plan.number, over)
    reporting = threading.Thread(target=_report, args=arguments, name="multilane-report", daemon=True)
    reporting.start()
    try:
        member.run()
    except Exception as error:
        log.exception("the member failed")
        stage = FailureStage.REFUSED if isinstance(error, ConfigError) else FailureStage.SERVING
        return _send_failure(channel, plan, error, stage=stage)
    finally:
        over.set()
        reporting.join()
    return "in order"


def _receive(channel: MessageChannel, member: Member, over: threading.Event) -> None:
    """Any message but `steer`, and the end of the channel, stops the member. A member that has ended already is not
    stopped: that would apply to its next life."""
    while (message := channel.receive()) is not None and message["kind"] == ToMember.STEER:
        member.steer(message["consumer"], overrides_from(message["steering"]))
    if over.is_set():
        return
    if message is None:
        log.warning("the driver is gone: ending in order")
    member.stop()


def _report(channel: MessageChannel, member: Member, number: int, over: threading.Event) -> None:
    is_over = False
    while not is_over:
        is_over = over.wait(_REPORT_SECONDS)
        news = {"counts": member.counts(), "failures": member.failures(), "gauges": member.gauges()}
        channel.try_send(FromMember.REPORT, number=number, **news)


def _send_failure(channel: MessageChannel, plan: MemberTaskPlan, error: BaseException, *, stage: FailureStage) -> str:
    channel.try_send(FromMember.FAILED, number=plan.number, error=in_short(error), stage=stage)
    return in_short(error)
