"""What runs in a Spark worker: a member of the application, for as long as the driver wants it.

Thread: the worker's own runs the member; a second one listens to the driver, a third tells it what was counted.

The member is made by a factory that is found by import path, in the directory where the application lives. It begins
when the driver says so, and ends in order when the driver says so or is not there any more: a member whose run is
over takes no more records. What it fails with is told over the line and is no failure of the task: Spark would start it
again at once, and the supervisor knows better when. A process that dies is Spark's to start again.
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

from multilane.engines.channel.channel import MessageChannel, call
from multilane.engines.worker_environment import found, in_worker_environment
from multilane.errors import ConfigError
from multilane.lanes.consumer_overrides import ConsumerOverrides, overrides_from
from multilane.logs import logger
from multilane.spark.reasons import in_short

log = logger(__name__)

STARTING, REFUSED, SERVING = "starting", "refused", "serving"  # when a member failed; refused: by its configuration
_BEAT_SECONDS: Final = 1.0

Count = tuple[str, dict[str, str], float]  # name, labels, how many more


class Member(Protocol):
    """What a factory makes."""

    def run(self) -> None:
        """Until `stop`."""

    def stop(self) -> None:
        """In order; from any thread."""

    def steer(self, consumer: str, steering: ConsumerOverrides) -> None:
        """From any thread, also before it runs."""

    def counts(self) -> list[Count]:
        """What was counted since the last time; from any thread."""

    def failures(self) -> list[dict[str, Any]]:
        """What failed since then, for the driver's log; from any thread."""


@dataclass(frozen=True, slots=True)
class MemberTaskPlan:
    """All that a worker is told; it travels inside the task."""

    number: int
    factory: str  # MODULE:NAME of what makes the member, given the target
    target: str
    home: str  # where the application's modules and files are
    log_level: str
    address: tuple[str, int]
    token: str = field(repr=False)


def serve(plan: MemberTaskPlan, batches: Iterator[Any]) -> Iterator[Any]:
    """The function of the task: one row when the member has ended, which says how."""
    import pyarrow as pa

    for _ in batches:
        pass  # the row that made Spark start a task
    how = _attend(plan)
    yield pa.RecordBatch.from_pydict({"member": pa.array([plan.number], pa.int32()), "ended": pa.array([how])})


def _attend(plan: MemberTaskPlan) -> str:
    logging.basicConfig(level=plan.log_level, format=f"%(asctime)s member {plan.number} %(levelname)s %(message)s")
    with ExitStack() as stack:
        line = call(plan.address, plan.token)
        stack.callback(line.close)
        try:
            stack.enter_context(in_worker_environment(plan.home, plan.number))
            member: Member = found(plan.factory)(plan.target)
        except (Exception, SystemExit) as error:
            log.exception("the application cannot be made here")
            return _tell_failure(line, plan, error, stage=STARTING)
        return _be_member(plan, member, line)


def _be_member(plan: MemberTaskPlan, member: Member, line: MessageChannel) -> str:
    line.send("ready", number=plan.number, host=socket.gethostname(), pid=os.getpid())
    said = line.receive()
    if said is None or said["kind"] != "serve":
        return "not needed"
    over = threading.Event()
    threading.Thread(target=_hear, args=(line, member, over), name="multilane-driver", daemon=True).start()
    beating = threading.Thread(target=_beat, args=(line, member, plan.number, over), name="multilane-beat", daemon=True)
    beating.start()
    try:
        member.run()
    except Exception as error:
        log.exception("the member failed")
        return _tell_failure(line, plan, error, stage=REFUSED if isinstance(error, ConfigError) else SERVING)
    finally:
        over.set()
        beating.join()
    return "in order"


def _hear(line: MessageChannel, member: Member, over: threading.Event) -> None:
    """It is steered until something else comes: whatever that is, be it the end of the line, means the end; but not of
    a member that has ended by itself: a stop would be for its next life."""
    while (said := line.receive()) is not None and said["kind"] == "steer":
        member.steer(said["consumer"], overrides_from(said["steering"]))
    if over.is_set():
        return
    if said is None:
        log.warning("the driver is gone: ending in order")
    member.stop()


def _beat(line: MessageChannel, member: Member, number: int, over: threading.Event) -> None:
    is_over = False
    while not is_over:
        is_over = over.wait(_BEAT_SECONDS)
        line.tell("beat", number=number, counts=member.counts(), failures=member.failures())


def _tell_failure(line: MessageChannel, plan: MemberTaskPlan, error: BaseException, *, stage: str) -> str:
    line.tell("failed", number=plan.number, error=in_short(error), stage=stage)
    return in_short(error)
