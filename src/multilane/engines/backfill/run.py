"""Runs a listener over a topic's history on Spark, without its group: the composition root of the driver.

Thread: application (the main thread: signal handlers).

Checks everything that does not need Spark first: the application, the state, the range. The range is looked up once,
when a backfill is created, and saved with its state; a later run continues with it. Never joins a group or commits an
offset: the state directory is the only record of progress.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from multilane.app.metrics_server import served
from multilane.app.signals import signals_stop
from multilane.app.targets import find_app
from multilane.client.admin.admin import Admin
from multilane.client.admin.answers import TopicDescription
from multilane.client.consumer import Consumer
from multilane.config.app.clients import admin_properties, consumer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.consumer import parse_consumer
from multilane.engines.backfill.bounds import Bound, OffsetByPartition, bound_text, named_partitions, offset_ranges
from multilane.engines.backfill.driver import BackfillDriver, BackfillRunSpec, BackfillStatus
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
_CLOSE_SECONDS: Final = 60.0  # after the drain, to close producers


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    target: str
    consumer: str  # its name in the configuration
    state: Path
    begin: Bound | None = None  # None: as in the saved plan
    end: Bound | None = None  # None: as in the saved plan, or `latest` for a new backfill
    tasks: int | None = None  # None: one for each slot of a local master, else one for each partition
    to_error_topic: bool = False
    skips_deleted: bool = False
    failed_only: bool = False
    metrics: str | None = None  # HOST:PORT for Prometheus
    spark: SparkSettings = field(default_factory=lambda: SparkSettings(flow=CONTINUOUS))


@dataclass(frozen=True, slots=True)
class BackfillOutcome:
    """The result of a run."""

    plan: BackfillPlan
    status: BackfillStatus
    records: int  # in all runs
    seconds: float  # in all runs
    is_through: bool
    failed_list: Path | None  # None: nothing failed


@dataclass(frozen=True, slots=True)
class Listeners:
    """Callbacks for the progress of a run."""

    on_step: Callable[[str], object] = lambda step: None
    on_status: Callable[[BackfillStatus], object] = lambda status: None


def backfill(request: BackfillRequest, listeners: Listeners | None = None) -> BackfillOutcome:
    """Run until the backfill is finished, or until a signal; a later run continues it."""
    callbacks = listeners or Listeners()
    app = find_app(request.target)
    config = app.full_registration(request.consumer).config
    if request.to_error_topic and config.error is None:
        raise ConfigError(f"consumer {config.name!r} has no error topic: omit --errors-to-topic, or configure one")
    session_conf(request.spark)  # report its problems before anything is written
    driver: BackfillDriver | None = None

    def reasons_unready() -> list[str]:
        return ["the run has not begun"] if driver is None else driver.unready

    with served(app, request.metrics, reasons_unready), StateFiles(request.state) as files:
        callbacks.on_step(f"reading the offsets of {config.topic}")
        progress = _progress(request, files, config, app.config.cluster(config.cluster))
        driver = BackfillDriver(progress, files, callbacks.on_status, observer=app.observer)
        app.progress = driver.progress
        if not progress.is_through:
            with signals_stop(driver.stop):  # before Spark, which takes seconds to start
                callbacks.on_step("starting Spark")
                _run(request, config, progress, driver, callbacks.on_step)
        failed_list = files.failed_path(progress) if progress.failed else None
        return BackfillOutcome(
            progress.plan, driver.status, progress.records, progress.seconds, progress.is_through, failed_list
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
        spec = BackfillRunSpec(
            tasks=request.tasks or slots or len(progress.open_partitions),
            factory=_WORKER,
            target=request.target,
            home=home_of(settings),
            to_error_topic=request.to_error_topic,
            skips_deleted=request.skips_deleted,
            bind=bind,
            host=host,
            log_level=settings.log_level,
            drain_seconds=config.rebalance_timeout / 2 + _CLOSE_SECONDS,
            start_seconds=start_seconds(settings.conf),
        )
        on_step("waiting for the first task")
        title = f"multilane: {config.name} of {request.target} over {config.topic}"
        driver.run(spec, BackfillJob(spark, uuid.uuid4().hex[:12], title))


# --- the plan --------------------------------------------------------------------------------------------------------


def _progress(
    request: BackfillRequest, files: StateFiles, config: ConsumerGroupConfig, cluster: ClusterConfig
) -> BackfillProgress:
    """The progress of a new backfill, or the saved one."""
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
            _select_failed(progress, files)
        check_ends(progress, logs)
        with Consumer(_reader_properties(config, cluster)) as consumer:
            check_settled(progress, consumer)
        check_there(progress, logs, skips_deleted=request.skips_deleted)
    files.save(progress)
    return progress


def _new_plan(
    request: BackfillRequest, config: ConsumerGroupConfig, topic: TopicDescription, logs: Logs
) -> BackfillPlan:
    if request.failed_only:
        raise ConfigError(f"there is no backfill in {request.state}: omit --failed-only")
    if request.begin is None:
        raise ConfigError(f"there is no backfill in {request.state}: set --from to start one")
    begin: Bound = request.begin
    end: Bound = "latest" if request.end is None else request.end
    named = named_partitions(begin, end)
    partitions = logs.partitions if named is None else named
    unknown = sorted(partitions - logs.partitions)
    if unknown:
        raise ConfigError(f"{topic.name} has no partition {unknown[0]}: it has {len(logs.partitions)} partitions")
    starts, ends = logs.at(begin, partitions), logs.at(end, partitions)
    found = offset_ranges(_no_later(starts, ends, begin), ends, _both(logs, partitions))
    texts = bound_text(begin), bound_text(end)
    if all(start == stop for start, stop in found.values()):
        raise NoHistory(f"{topic.name} has no records from {texts[0]} to {texts[1]}: choose another range")
    return BackfillPlan(config.name, config.group_id, topic.name, _id_of(topic), *texts, found)


def _no_later(starts: OffsetByPartition, ends: OffsetByPartition, begin: Bound) -> OffsetByPartition:
    """Timestamps of a topic need not increase: the first record since the begin time may come after the end. Then the
    range is empty. Offsets are taken as given."""
    return starts if isinstance(begin, Mapping) else {p: min(start, ends[p]) for p, start in starts.items()}


def _both(logs: Logs, partitions: Collection[int]) -> dict[int, tuple[int, int]]:
    firsts, lasts = logs.at("earliest", partitions), logs.at("latest", partitions)
    return {partition: (firsts[partition], lasts[partition]) for partition in partitions}


def _check_same(
    request: BackfillRequest, plan: BackfillPlan, config: ConsumerGroupConfig, topic: TopicDescription
) -> None:
    difference = plan.difference(
        consumer=config.name,
        group=config.group_id,
        topic=config.topic,
        topic_id=_id_of(topic) if plan.topic_id is not None else None,
        begin=None if request.begin is None else bound_text(request.begin),
        end=None if request.end is None else bound_text(request.end),
    )
    if difference is not None:
        raise ConfigError(
            f"{request.state} has a backfill {difference}. To continue it, omit the option that differs; to start "
            "another one, use another --state or delete this directory"
        )


def _select_failed(progress: BackfillProgress, files: StateFiles) -> None:
    if not progress.is_through:
        if progress.pass_number > 1:
            return  # an earlier run of this pass was interrupted
        raise ConfigError("--failed-only needs a finished backfill: let this one finish first")
    if not progress.failed:
        raise ConfigError("no record has failed: --failed-only has nothing to do")
    log.info("reprocessing %d failed records of %s", len(progress.failed), files.failed_path(progress))
    progress.begin_pass_over_failed()


def _described(admin: Admin, topic: str) -> TopicDescription:
    try:
        return admin.topics([topic])[topic]
    except BrokerError as error:
        if error.code != _UNKNOWN_TOPIC:
            raise
        raise ConfigError(f"there is no topic {topic!r} on these brokers: correct its name") from None


def _id_of(topic: TopicDescription) -> str | None:
    return None if topic.id is None else str(topic.id)


def _reader_properties(config: ConsumerGroupConfig, cluster: ClusterConfig) -> dict[str, object]:
    """Properties of a consumer that joins no group."""
    return {k: v for k, v in consumer_properties(config, cluster).items() if not k.startswith("group.")}
