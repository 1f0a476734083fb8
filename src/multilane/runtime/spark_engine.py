"""Runs an application on Spark, with the continuous flow: the composition root of the driver.

Thread: application (the main thread: signal handlers).

Everything that can be found out before Spark starts is found out here, in the order of how long it takes: the
application, its functions, Java, the master, the slots. Nothing has been read or committed until all members are ready.
"""

from __future__ import annotations

import logging
import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from multilane.clock import Clock, SystemClock
from multilane.errors import ConfigError, SparkStartError
from multilane.runtime.app import App
from multilane.runtime.signals import signals_stop
from multilane.runtime.targets import find_app
from multilane.spark.continuous.jobs import Jobs, slots
from multilane.spark.continuous.supervisor import RunPlan, Supervisor
from multilane.spark.continuous.task import MEMBER_VARIABLE
from multilane.spark.packing import UNPACKED
from multilane.spark.session import is_local, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_FACTORY: Final = "multilane.runtime.member:AppMember"
_BEYOND_DRAIN: Final = 60.0  # seconds for leaving the groups and closing producers
_SLOTS_SECONDS: Final = 30.0  # executors of a cluster come one after the other
_LOOK: Final = 0.5


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where and how an application runs."""

    master: str = "local[*]"
    members: int | None = None  # None: as many as there are slots
    conf: Mapping[str, str] = field(default_factory=dict)
    home: str | None = None  # where executors find the application; None: where it was started, or in the archive
    archive: Path | None = None  # made by `multilane pack`; executors unpack it
    log_level: str = "INFO"


def run_on_spark(target: str, settings: SparkSettings, session: SparkSession | None = None) -> None:
    """Until SIGTERM, Ctrl-C, or something that starting again does not mend. With a session of the caller's, that one
    is used, and stays."""
    if settings.members is not None and settings.members < 1:
        raise ConfigError(f"{settings.members} members: at least one is needed")
    os.environ.setdefault(MEMBER_VARIABLE, "0")  # a configuration may name it
    app = find_app(target)
    app.check_runnable()
    supervisor = Supervisor(observer=app.observer)
    with signals_stop(supervisor.stop):  # from now on: Spark takes seconds to start
        spark = session or start_session(settings.master, f"multilane {target}", _conf(settings))
        try:
            supervisor.run(_plan(target, settings, app, spark), Jobs(spark, uuid.uuid4().hex[:12]))
        finally:
            if session is None:
                spark.stop()


def _plan(target: str, settings: SparkSettings, app: App, spark: SparkSession) -> RunPlan:
    members = _members(settings, spark, SystemClock())
    log.info("%s runs on Spark %s, master %s, with %d members", target, spark.version, settings.master, members)
    drain = max((group.rebalance_timeout / 2 for group in app.config.consumers.values()), default=0.0)
    host = "127.0.0.1" if is_local(settings.master) else _driver_host(spark)
    return RunPlan(
        members=members,
        factory=_FACTORY,
        target=target,
        home=settings.home or (os.getcwd() if settings.archive is None else UNPACKED),
        bind=spark.conf.get("spark.driver.bindAddress", host) or host,
        host=host,
        log_level=settings.log_level,
        drain_seconds=drain + _BEYOND_DRAIN,
    )


def _conf(settings: SparkSettings) -> dict[str, str]:
    conf = dict(settings.conf)
    if settings.archive is not None:
        if not settings.archive.is_file():
            raise ConfigError(f"there is no archive {settings.archive}: multilane pack {settings.archive}")
        ours = f"{settings.archive.resolve()}#{UNPACKED}"
        conf["spark.archives"] = ",".join(filter(None, (conf.get("spark.archives"), ours)))
    return conf


def _driver_host(spark: SparkSession) -> str:
    host = spark.conf.get("spark.driver.host", "")
    if not host:
        raise SparkStartError("executors have to reach this process: say how with --conf spark.driver.host=...")
    return host


def _members(settings: SparkSettings, spark: SparkSession, clock: Clock) -> int:
    """As many as were asked for, if there are slots for them."""
    free = slots(spark)
    if free is None:
        if settings.members is None:
            raise ConfigError("how many slots there will be is not known beforehand: say --members")
        return settings.members
    wanted = settings.members or free
    deadline = clock.monotonic() + (0.0 if is_local(settings.master) else _SLOTS_SECONDS)
    while free < wanted and clock.monotonic() < deadline:
        threading.Event().wait(_LOOK)
        free = slots(spark) or 0
    if free < wanted:
        raise SparkStartError(
            f"{wanted} members need {wanted} slots, and Spark has {free}. Ask for fewer with --members, or give Spark "
            "more cores"
        )
    return wanted
