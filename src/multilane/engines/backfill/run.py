"""Runs a listener over a topic's history on Spark, without its group: the composition root of the driver.

Thread: application (the main thread: signal handlers).

What can be found out without Spark is found out first: the application, the state, the range. The range is looked up
once, when a backfill is begun, and kept with its state; a later start goes on with it. No group is joined and nothing
is committed anywhere: the state is the only truth.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from multilane.app.signals import signals_stop
from multilane.app.targets import find_app
from multilane.client.admin.admin import Admin
from multilane.client.admin.answers import TopicDescription
from multilane.client.consumer import Consumer
from multilane.config.app.clients import admin_properties, consumer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.consumer import parse_consumer
from multilane.engines.backfill.bounds import Bound, Offsets, named_partitions, stretches, told
from multilane.engines.backfill.driver import BackfillDriver, BackfillRunPlan, BackfillStatus
from multilane.engines.backfill.job import BackfillJob
from multilane.engines.backfill.log_checks import Logs, check_ends, check_settled, check_there
from multilane.engines.backfill.progress import BackfillPlan, BackfillProgress
from multilane.engines.backfill.state_files import StateFiles
from multilane.engines.spark_run import CONTINUOUS, SparkSettings, home_of, hosts_of, session_conf
from multilane.errors import BrokerError, ConfigError, NoHistory
from multilane.logs import logger
from multilane.spark.first_slot import start_seconds
from multilane.spark.session import ended_with, local_slots, start_session

log = logger(__name__)

_UNKNOWN_TOPIC: Final = 3
_WORKER: Final = "multilane.engines.backfill.worker_app:BackfillWorkerApp"
_BEYOND_DRAIN: Final = 60.0  # seconds for closing producers


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    target: str
    consumer: str  # its name in the configuration
    state: Path
    begin: Bound | None = None  # None: as it was begun
    end: Bound | None = None  # the same; one that is begun ends at the latest
    tasks: int | None = None  # None: as many as a local master has slots, else one for each partition
    to_error_topic: bool = False
    skips_deleted: bool = False
    failed_only: bool = False
    spark: SparkSettings = field(default_factory=lambda: SparkSettings(flow=CONTINUOUS))


@dataclass(frozen=True, slots=True)
class BackfillOutcome:
    """How a run has ended."""

    plan: BackfillPlan
    standing: BackfillStatus
    records: int  # in all runs
    seconds: float  # the same
    is_through: bool
    failed_list: Path | None  # None: nothing failed


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who is told how it goes."""

    on_step: Callable[[str], object] = lambda step: None
    on_standing: Callable[[BackfillStatus], object] = lambda standing: None


def backfill(request: BackfillRequest, listeners: Listeners | None = None) -> BackfillOutcome:
    """Until it is through, or a signal; then it can be gone on with."""
    heard = listeners or Listeners()
    app = find_app(request.target)
    config = app.full_registration(request.consumer).config
    if request.to_error_topic and config.error is None:
        raise ConfigError(f"consumer {config.name!r} has no error topic: leave --errors-to-topic out, or configure one")
    session_conf(request.spark)  # what is wrong with it is said before anything is written
    with StateFiles(request.state) as files:
        heard.on_step(f"looking at {config.topic}")
        progress = _progress(request, files, config, app.config.cluster(config.cluster))
        driver = BackfillDriver(progress, files, heard.on_standing)
        if not progress.is_through:
            with signals_stop(driver.stop):  # from now on: Spark takes seconds to start
                heard.on_step("starting Spark")
                _run(request, config, progress, driver, heard.on_step)
        failed_list = files.failed_path(progress) if progress.failed else None
        return BackfillOutcome(
            progress.plan, driver.standing, progress.records, progress.seconds, progress.is_through, failed_list
        )


def _run(
    request: BackfillRequest,
    config: ConsumerGroupConfig,
    progress: BackfillProgress,
    driver: BackfillDriver,
    on_step: Callable[[str], object],
) -> None:
    settings = request.spark
    slots = local_slots(settings.master)
    master = settings.master.replace("*", str(slots))
    spark = start_session(master, f"multilane backfill {request.target} {config.name}", session_conf(settings))
    with ended_with(spark):
        bind, host = hosts_of(settings, spark)
        plan = BackfillRunPlan(
            tasks=request.tasks or slots or len(progress.open_partitions),
            factory=_WORKER,
            target=request.target,
            home=home_of(settings),
            to_error_topic=request.to_error_topic,
            skips_deleted=request.skips_deleted,
            bind=bind,
            host=host,
            log_level=settings.log_level,
            drain_seconds=config.rebalance_timeout / 2 + _BEYOND_DRAIN,
            start_seconds=start_seconds(settings.conf),
        )
        on_step("waiting for the first task")
        title = f"multilane: {config.name} of {request.target} over {config.topic}"
        driver.run(plan, BackfillJob(spark, uuid.uuid4().hex[:12], title))


# --- what is to be done ----------------------------------------------------------------------------------------------


def _progress(
    request: BackfillRequest, files: StateFiles, config: ConsumerGroupConfig, cluster: ClusterConfig
) -> BackfillProgress:
    """Begun, or gone on with."""
    with Admin(admin_properties(cluster)) as admin:
        topic = _described(admin, config.topic)
        logs = Logs(admin, topic, read_committed=parse_consumer(consumer_properties(config, cluster)).read_committed)
        known = files.plan()
        if known is None:
            plan = _new_plan(request, config, topic, logs)
            files.begin(plan)
        else:
            plan = known
            _check_same(request, plan, config, topic)
        progress = files.load(plan)
        if request.failed_only:
            _turn_to_failed(progress, files)
        check_ends(progress, logs)
        with Consumer(_reading(config, cluster)) as consumer:
            check_settled(progress, consumer)
        check_there(progress, logs, skips_deleted=request.skips_deleted)
    files.save(progress)
    return progress


def _new_plan(
    request: BackfillRequest, config: ConsumerGroupConfig, topic: TopicDescription, logs: Logs
) -> BackfillPlan:
    if request.failed_only:
        raise ConfigError(f"there is no backfill in {request.state} that could have failed: leave --failed-only out")
    if request.begin is None:
        raise ConfigError(f"there is no backfill in {request.state} to go on with: say where it begins with --from")
    begin: Bound = request.begin
    end: Bound = "latest" if request.end is None else request.end
    named = named_partitions(begin, end)
    partitions = logs.partitions if named is None else named
    unknown = sorted(partitions - logs.partitions)
    if unknown:
        raise ConfigError(f"{topic.name} has no partition {unknown[0]}: it has {len(logs.partitions)}, from 0 on")
    starts, ends = logs.at(begin, partitions), logs.at(end, partitions)
    made = stretches(_no_later(starts, ends, begin), ends, _both(logs, partitions))
    if all(start == stop for start, stop in made.values()):
        raise NoHistory(f"{topic.name} has no records from {told(begin)} to {told(end)}: choose another time")
    return BackfillPlan(config.name, config.group_id, topic.name, _id_of(topic), told(begin), told(end), made)


def _no_later(starts: Offsets, ends: Offsets, begin: Bound) -> Offsets:
    """Times of a topic's records need not rise: where the first as late as the beginning comes behind the end, there is
    nothing. Offsets are meant as they are."""
    return starts if isinstance(begin, Mapping) else {p: min(start, ends[p]) for p, start in starts.items()}


def _both(logs: Logs, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
    firsts, lasts = logs.at("earliest", partitions), logs.at("latest", partitions)
    return {partition: (firsts[partition], lasts[partition]) for partition in partitions}


def _check_same(
    request: BackfillRequest, plan: BackfillPlan, config: ConsumerGroupConfig, topic: TopicDescription
) -> None:
    wrong = plan.difference(
        consumer=config.name,
        group=config.group_id,
        topic=config.topic,
        topic_id=_id_of(topic) if plan.topic_id is not None else None,
        begin=None if request.begin is None else told(request.begin),
        end=None if request.end is None else told(request.end),
    )
    if wrong is not None:
        raise ConfigError(
            f"{request.state} has a backfill {wrong}. To go on with it leave out what differs; to begin another one "
            "give another --state, or delete this directory"
        )


def _turn_to_failed(progress: BackfillProgress, files: StateFiles) -> None:
    if not progress.is_through:
        if progress.round > 1:
            return  # of a run that was ended in the middle of it
        raise ConfigError("--failed-only is for a backfill that is through: let this one go on to its end first")
    if not progress.failed:
        raise ConfigError("no record has failed: there is nothing to do for --failed-only")
    log.info("%d failed records of %s are tried once more", len(progress.failed), files.failed_path(progress))
    progress.begin_round_of_failed()


def _described(admin: Admin, topic: str) -> TopicDescription:
    try:
        return admin.topics([topic])[topic]
    except BrokerError as error:
        if error.code != _UNKNOWN_TOPIC:
            raise
        raise ConfigError(f"there is no topic {topic!r} on these brokers: mend its name") from None


def _id_of(topic: TopicDescription) -> str | None:
    return None if topic.id is None else str(topic.id)


def _reading(config: ConsumerGroupConfig, cluster: ClusterConfig) -> dict[str, object]:
    """A consumer that is a member of no group."""
    return {k: v for k, v in consumer_properties(config, cluster).items() if not k.startswith("group.")}
