"""A task in a Spark worker: runs a member of the application until the driver stops it.

Thread: the worker's own runs the member; a second one receives from the driver, a third reports counts to it.

A factory makes the member. It is found by import path, in the application's directory. The member begins when the
driver permits it, and shuts down cleanly when the driver says so or is gone: a member whose run is over takes no more
records. Its failure is sent to the driver and does not fail the task. Spark would retry the task at once; the
supervisor controls the back-off. A process that dies is restarted by Spark.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from multilane.engines.channel.channel import MessageChannel
from multilane.engines.continuous.messages import FailureStage, FromMember, ToMember
from multilane.engines.task import CLEANLY, NOT_NEEDED, TaskSpec, WorkerTask, ended_row, run_in_worker
from multilane.errors import ConfigError
from multilane.lanes.consumer_overrides import ConsumerOverrides, overrides_from
from multilane.logs import logger
from multilane.metrics.observer import Count, Duration, Gauge

log = logger(__name__)

_NAME: Final = "member"
_REPORT_SECONDS: Final = 1.0


class Member(Protocol):
    """What a factory makes."""

    def run(self) -> None:
        """Until `stop`."""

    def stop(self) -> None:
        """In order; from any thread."""

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        """From any thread, also before `run`."""

    def counts(self) -> list[Count | Duration]:
        """Increments since the last call; from any thread."""

    def gauges(self) -> list[Gauge] | None:
        """The current gauges; None if the member cannot tell. From any thread."""

    def failures(self) -> list[dict[str, Any]]:
        """Failures since the last call, for the driver's log; from any thread."""


@dataclass(frozen=True, slots=True)
class MemberTaskSpec(TaskSpec):
    number: int = field(kw_only=True)


def serve(spec: MemberTaskSpec, batches: Iterator[Any]) -> Iterator[Any]:
    """The task's function: yields one row when the member has ended, with how it ended."""
    for _ in batches:
        pass  # the row that made Spark start a task
    yield ended_row(_NAME, spec.number, run_in_worker(spec, spec.number, _NAME, _make, _run))


def _make(task: WorkerTask) -> Member:
    member: Member = task.load_worker(stage=FailureStage.STARTING)
    return member


def _run(task: WorkerTask, member: Member) -> str:
    task.channel.send(FromMember.READY, number=task.number, host=socket.gethostname(), pid=os.getpid())
    message = task.channel.receive()
    if message is None or message["kind"] != ToMember.SERVE:
        return NOT_NEEDED
    over = threading.Event()
    task.start_receiver(_receive, task.channel, member, over)
    arguments = (task.channel, member, task.number, over)
    reporting = threading.Thread(target=_report, args=arguments, name="multilane-report", daemon=True)
    reporting.start()
    try:
        member.run()
    except Exception as error:
        log.exception("the member failed")
        stage = FailureStage.REFUSED if isinstance(error, ConfigError) else FailureStage.SERVING
        return task.send_failure(error, stage=stage)
    finally:
        over.set()
        reporting.join()
    return CLEANLY


def _receive(channel: MessageChannel, member: Member, over: threading.Event) -> None:
    """Any message but `APPLY_OVERRIDES`, and the end of the channel, stops the member. A member that has ended already
    is not stopped: that would apply to its next life."""
    while (message := channel.receive()) is not None and message["kind"] == ToMember.APPLY_OVERRIDES:
        member.apply_overrides(message["consumer"], overrides_from(message["steering"]))
    if over.is_set():
        return
    if message is None:
        log.warning("lost the driver: shutting down cleanly")
    member.stop()


def _report(channel: MessageChannel, member: Member, number: int, over: threading.Event) -> None:
    is_over = False
    while not is_over:
        is_over = over.wait(_REPORT_SECONDS)
        news = {"counts": member.counts(), "failures": member.failures(), "gauges": member.gauges()}
        channel.try_send(FromMember.REPORT, number=number, **news)
