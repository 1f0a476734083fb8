"""Runs an application on Spark, in one of two flows: the composition root of the driver.

Thread: application (the main thread: signal handlers).

Checks everything that can be checked before Spark starts, the fastest checks first: the application, its functions,
Java, the master, the slots. Nothing is handled or committed before all of them pass.
"""

from __future__ import annotations

import os
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from multilane.app.app import App
from multilane.app.control import controlled_at
from multilane.app.member_checks import check_members_differ
from multilane.app.metrics_server import served
from multilane.app.signals import signals_stop
from multilane.app.targets import find_app
from multilane.engines.batches.driver import QuerySupervisor
from multilane.engines.batches.lease_coordinator import CoordinatorSpec
from multilane.engines.batches.lease_table import LeaseTerms
from multilane.engines.continuous.driver import MemberRunSpec, Supervisor
from multilane.engines.continuous.jobs import SparkMemberJobs
from multilane.engines.job_names import job_name
from multilane.errors import ConfigError, SparkStartError
from multilane.lanes.consumer_overrides import ConsumerOverrides
from multilane.logs import logger
from multilane.spark.first_slot import start_seconds
from multilane.spark.packing import UNPACKED
from multilane.spark.session import (
    QUICK_START,
    ended_with,
    is_connect,
    is_local,
    local_slots,
    masked_master,
    start_session,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logger(__name__)

CONTINUOUS: Final = "continuous"
BATCHES: Final = "batches"
_MEMBER: Final = "multilane.app.member:AppMember"
COORDINATOR: Final = "multilane.engines.batches.coordinator_app:CoordinatorApp"
WORKER: Final = "multilane.engines.batches.worker_app:LeaseWorkerApp"
_REUSE: Final = "spark.python.worker.reuse"
_BEYOND_DRAIN: Final = 100.0  # seconds to leave the groups and close producers


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """Where and how an application runs."""

    flow: str = BATCHES
    master: str = "local[*]"
    members: int | None = None  # None: one for each slot of a local master
    conf: Mapping[str, str] = field(default_factory=dict)
    home: str | None = None  # where executors find the application; None: the current directory, or the archive
    archive: Path | None = None  # made by `multilane pack`; executors unpack it
    host: str | None = None  # where executors reach this process; None: Spark's own setting
    log_level: str = "INFO"
    control: Path | None = None  # the socket that changes overrides while it runs
    metrics: str | None = None  # HOST:PORT for Prometheus
    terms: LeaseTerms = field(default_factory=LeaseTerms)  # of batches


def run_on_spark(target: str, settings: SparkSettings) -> None:
    """Until SIGTERM, Ctrl-C, or a permanent failure."""
    members = _members(settings)
    app = find_app(target)
    app.check_runnable()
    if settings.flow == CONTINUOUS and members > 1:
        check_members_differ(app)
    with served(app, settings.metrics):
        _run(app, target, members, settings)


def _run(app: App, target: str, members: int, settings: SparkSettings) -> None:
    flow = (Batches if settings.flow == BATCHES else Continuous)(app, target, members, settings)
    with signals_stop(flow.stop):  # from now on: Spark takes seconds to start
        # One thread for each member: a container may grant the JVM fewer processors than we counted.
        master = settings.master.replace("*", str(local_slots(settings.master)))
        spark = start_session(master, job_name(target), session_conf(settings))
        with ended_with(spark):
            facts = target, spark.version, masked_master(settings.master), members
            log.info("%s runs on Spark %s, master %s, with %d members", *facts)
            with app.overrides.applied_by(flow.apply_overrides), controlled_at(app, settings.control):
                flow.run(spark)


class _Flow:
    """What both flows need."""

    def __init__(self, app: App, target: str, members: int, settings: SparkSettings) -> None:
        self._target = target
        self._consumers = app.consumers
        self._members = members
        self._settings = settings
        self._home = home_of(settings)
        self._start_seconds = start_seconds(settings.conf)
        drain = max((group.rebalance_timeout / 2 for group in app.config.consumers.values()), default=0.0)
        self._drain_seconds = drain + _BEYOND_DRAIN


class Continuous(_Flow):
    """Long-lived tasks, each a member of the groups."""

    def __init__(self, app: App, target: str, members: int, settings: SparkSettings) -> None:
        super().__init__(app, target, members, settings)
        self._supervisor = Supervisor(observer=app.observer)
        app.progress = self._supervisor.progress

    def stop(self) -> None:
        self._supervisor.stop()

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        self._supervisor.apply_overrides(consumer, overrides)

    def run(self, spark: SparkSession) -> None:
        bind, host = hosts_of(self._settings, spark)
        spec = MemberRunSpec(
            members=self._members,
            factory=_MEMBER,
            target=self._target,
            home=self._home,
            bind=bind,
            host=host,
            log_level=self._settings.log_level,
            drain_seconds=self._drain_seconds,
            start_seconds=self._start_seconds,
        )
        self._supervisor.run(
            spec, SparkMemberJobs(spark, uuid.uuid4().hex[:12], job_name(self._target, self._consumers))
        )


class Batches(_Flow):
    """A query whose tasks lease the partitions of one member."""

    def __init__(self, app: App, target: str, members: int, settings: SparkSettings) -> None:
        super().__init__(app, target, members, settings)
        self._query_supervisor = QuerySupervisor(observer=app.observer)
        app.progress = self._query_supervisor.progress

    def stop(self) -> None:
        self._query_supervisor.stop()

    def apply_overrides(self, consumer: str, overrides: ConsumerOverrides) -> None:
        self._query_supervisor.apply_overrides(consumer, overrides)

    def run(self, spark: SparkSession) -> None:
        bind, host = hosts_of(self._settings, spark)
        spec = CoordinatorSpec(
            run=uuid.uuid4().hex[:12],
            factory=COORDINATOR,
            worker_factory=WORKER,
            target=self._target,
            home=self._settings.home or os.getcwd(),
            worker_home=self._home,
            tasks=self._members,
            terms=self._settings.terms,
            bind=bind,
            host=host,
            log_level=self._settings.log_level,
            token=secrets.token_hex(32),
            start_seconds=self._start_seconds,
            consumers=self._consumers,
        )
        self._query_supervisor.run(spark, spec, self._drain_seconds)


def home_of(settings: SparkSettings) -> str:
    """Where executors find the application."""
    return settings.home or (os.getcwd() if settings.archive is None else UNPACKED)


def hosts_of(settings: SparkSettings, spark: SparkSession) -> tuple[str, str]:
    """The address that this process binds, and the one that executors connect to."""
    master = settings.master
    host = settings.host or ("127.0.0.1" if is_local(master) else spark.conf.get("spark.driver.host")) or ""
    return host if is_connect(master) else spark.conf.get("spark.driver.bindAddress", host) or host, host


def _members(settings: SparkSettings) -> int:
    """The requested number, if there are slots for it. The slots of a cluster are not known beforehand: there the start
    waits for all members, and reports how many are missing."""
    wanted, free = settings.members, local_slots(settings.master)
    if wanted is not None and wanted < 1:
        raise ConfigError(f"{wanted} members: at least one is needed")
    if free is None:
        if wanted is None:
            raise ConfigError(
                f"the number of slots of {masked_master(settings.master)} is not known here: set --members"
            )
        return wanted
    if wanted is not None and wanted > free:
        raise SparkStartError(
            f"{wanted} members need {wanted} slots, but {settings.master} offers only {free}. Ask for fewer with "
            f"--members, or for more slots: --master local[{wanted}]"
        )
    return wanted or free


def session_conf(settings: SparkSettings) -> dict[str, str]:
    """Spark's settings for a run. Raises ConfigError for settings that exclude each other."""
    start_seconds(settings.conf)
    if is_connect(settings.master):
        if settings.flow == BATCHES:
            raise ConfigError("--flow batches does not support Spark Connect yet: use --flow continuous")
        if settings.archive is not None:
            raise ConfigError("--archive does not support Spark Connect: install the application where the server runs")
        if settings.host is None:
            raise ConfigError(
                "executors of a Spark Connect server have to reach this process: set its address with --host"
            )
        return dict(settings.conf)
    # Continuous: each start of a member gets a new process, because objects in modules belong to the event loop of one
    # life. Batches: the event loop lives as long as the worker process, so Spark has to reuse it.
    quick = QUICK_START if is_local(settings.master) else {}
    conf = {_REUSE: str(settings.flow == BATCHES).lower(), **quick, **settings.conf}
    if settings.flow == BATCHES and conf[_REUSE].strip().lower() != "true":
        raise ConfigError(
            f"{_REUSE}={conf[_REUSE]} ends workers with their batch, so a longer call would start over in each batch: "
            "remove the setting, or use --flow continuous"
        )
    if settings.archive is not None:
        if not settings.archive.is_file():
            raise ConfigError(f"no archive {settings.archive}: make it with multilane pack {settings.archive}")
        ours = f"{settings.archive.resolve()}#{UNPACKED}"
        conf["spark.archives"] = ",".join(filter(None, (conf.get("spark.archives"), ours)))
    return conf
