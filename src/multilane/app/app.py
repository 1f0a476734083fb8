"""The application: a configuration, the functions for its consumers, and their life.

Thread: any for registering and `stop`; `run` blocks its own, `serve` runs on an existing event loop.

Owns the registrations and, while it runs, the groups. Checks a function against its configuration when it is
registered. Never connects before it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from multilane.app.config_source import ConfigSource
from multilane.app.last_resort import LastResort
from multilane.app.runtime_overrides import RuntimeOverrides
from multilane.app.signals import signals_resume, signals_stop
from multilane.app.subscriptions import LeftBehind, Subscriptions
from multilane.clock import Clock, SystemClock
from multilane.config.app.advice import advice
from multilane.config.app.advising import gives_advice
from multilane.config.app.clients import producer_properties
from multilane.config.app.loading import FilePath
from multilane.config.app.model import AppConfig
from multilane.engines.process.driver import ProcessEngine
from multilane.engines.process.progress import ProcessProgress
from multilane.error_consumer.wiring import ErrorConsumers
from multilane.errors import ConfigError
from multilane.lanes.failure_log import FailureSink
from multilane.lanes.interpreter import run_to_end, tuned_interpreter
from multilane.lanes.last_steps import LastStepFunction
from multilane.lanes.partition_events import PartitionFunction
from multilane.lanes.progress import Progress
from multilane.listeners.interceptors import ConsumerInterceptor, ErrorInterceptor, Tracer
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer, guarded, pair
from multilane.runtime.crash_watch import CrashWatch
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.producing import ProducerInterceptor, Producers
from multilane.runtime.registration import Function, Interceptors, ListenerOptions, Registration, checked
from multilane.runtime.shared_lanes import grouped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from multilane.engines.dataframe.driver import StageOptions

log = logger(__name__)

F = TypeVar("F", bound=Function)


class App:
    """
    >>> app = multilane.App("multilane.yaml", profile="stage")
    >>> @app.listener("orders")
    ... async def index(order: Order, record: Record) -> None: ...
    >>> app.run()
    """

    def __init__(
        self,
        files: FilePath | Iterable[FilePath] | AppConfig,
        *,
        profile: str | None = None,
        properties: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        """Take one or more configuration files, or a loaded configuration. `properties` are Kafka properties for every
        client, for values that a file cannot hold, such as `sasl.oauthbearer.token.provider`."""
        self._config_source = ConfigSource(files, profile, properties)
        self.config = self._config_source.load()
        for hint in advice(self.config) if gives_advice() else ():
            log.warning("%s", hint)
        self._clock = clock or SystemClock()
        self.observer = guarded(observer, self._clock)
        self._registrations: dict[str, Registration] = {}
        self._interceptors = Interceptors()
        self._producer_interceptors: list[ProducerInterceptor] = []
        self._producers: Producers | None = None
        self._engine: ProcessEngine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of the last run
        self._is_stopped = False
        self.overrides = RuntimeOverrides()
        self._failure_sink: FailureSink | None = None
        self._crash_watch, self._counts = CrashWatch(self._clock), NO_OBSERVER  # of the current run
        self._subscriptions = Subscriptions(self.config, self._registrations, self._lane_factory)
        self.progress: Progress | None = None  # of the current run, or of the last one

    def config_of(self, member: int) -> AppConfig | None:
        """The configuration as the member with this number reads it; None if the app was not made from files."""
        return self._config_source.load_for(member)

    # --- registering -------------------------------------------------------------------------------------------------

    def listener(self, name: str, **options: Unpack[ListenerOptions]) -> Callable[[F], F]:
        """A decorator: register the function for a consumer of the configuration. The options give it other functions
        for its retry and error topics."""
        config = self.config.consumer(name)
        if config.name in self._registrations:
            raise ConfigError(f"consumer {config.name!r} already has a listener")
        unknown = sorted(options.keys() - ListenerOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(sorted(ListenerOptions.__annotations__))
            raise TypeError(f"consumer {config.name!r}: listener() has no option {unknown[0]!r}. Options: {known}")
        if "retry" in options and "batch_retry" in options:
            how = "pass retry for a single-record listener or batch_retry for a batch listener, not both"
            raise ConfigError(f"consumer {config.name!r}: {how}")

        def register(function: F) -> F:
            registration = Registration(
                config=config,
                function=function,
                retry=options.get("retry") or options.get("batch_retry"),
                error=options.get("error"),
                select=options.get("select"),
                route=options.get("route"),
                interceptors=options.get("interceptors") or Interceptors(),
            )
            self._registrations[config.name] = checked(registration, self.config.cluster(config.cluster))
            return function

        return register

    @property
    def consumers(self) -> tuple[str, ...]:
        return tuple(self._registrations)

    def registration(self, name: str) -> Registration:
        """The registration of a consumer, without the interceptors of the application."""
        config = self.config.consumer(name)
        if config.name not in self._registrations:
            raise ConfigError(f"consumer {config.name!r} has no listener: register one with @app.listener({name!r})")
        return self._registrations[config.name]

    @property
    def functions(self) -> list[Function]:
        return [registration.function for registration in self._registrations.values()]

    def intercept(self, *interceptors: ConsumerInterceptor) -> None:
        """Add interceptors for every consumer. They run before the consumer's own."""
        self._interceptors = replace(self._interceptors, consume=self._interceptors.consume + interceptors)

    def intercept_errors(self, *interceptors: ErrorInterceptor) -> None:
        self._interceptors = replace(self._interceptors, errors=self._interceptors.errors + interceptors)

    def trace(self, *tracers: Tracer) -> None:
        self._interceptors = replace(self._interceptors, tracers=self._interceptors.tracers + tracers)

    def intercept_producers(self, *interceptors: ProducerInterceptor) -> None:
        if self._producers is not None:
            raise ConfigError("register producer interceptors before the first use of the producers")
        self._producer_interceptors += interceptors

    def on_assigned(self, function: PartitionFunction) -> PartitionFunction:
        """A decorator: called with `Partitions` when a group assigns them to this process, before the first record."""
        known = self._interceptors.partitions
        functions = replace(known, assigned=(*known.assigned, function))
        self._interceptors = replace(self._interceptors, partitions=functions)
        return function

    def on_revoked(self, function: PartitionFunction) -> PartitionFunction:
        """A decorator: called when partitions are revoked, after their last record and before another member gets them.
        If they were lost (`is_lost`), another member may already have them."""
        known = self._interceptors.partitions
        self._interceptors = replace(self._interceptors, partitions=replace(known, revoked=(*known.revoked, function)))
        return function

    def last_step(self, function: LastStepFunction) -> LastStepFunction:
        """A decorator: handles records that no topic takes."""
        self._interceptors = replace(self._interceptors, last_step=function)
        return function

    # --- producing ---------------------------------------------------------------------------------------------------

    @property
    def producers(self) -> Producers:
        """Those of the configuration, created on first use and closed with the application."""
        if self._producers is None:
            self._producers = Producers(
                {name: (entry.topic, entry.cluster) for name, entry in self.config.producers.items()},
                {name: producer_properties(c, durable=False) for name, c in self.config.clusters.items()},
                interceptors=self._producer_interceptors,
            )
        return self._producers

    def stream(self, name: str, model: Any = None, *, spark: SparkSession | None = None, **options: Any) -> DataFrame:
        """Read the topic of a consumer as a streaming Spark DataFrame, for plain Spark SQL; no listener runs. A model
        adds the columns `payload` and `payload_error`. The options are those of `format("multilane")`."""
        from multilane.spark.topic_frames import stream_of

        return stream_of(spark, self.config, name, model, options)

    def table(
        self,
        name: str,
        model: Any = None,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        **source: Any,
    ) -> DataFrame:
        """Read what the topic of a consumer has now as a batch DataFrame, with the columns of `stream`: everything, or
        the records of a time (up to but not including `until`) or of the offsets that options of the source name."""
        from multilane.spark.topic_frames import Times, table_of

        return table_of(self.config, name, model, Times(since, until), source)

    def handle(self, frame: DataFrame, name: str, **options: Unpack[StageOptions]) -> DataFrame:
        """Run the listener of a consumer on the rows of a batch or streaming DataFrame, on lanes in Spark's workers, in
        the order of each key. The rows are Kafka records with the columns of Spark's source, filtered or changed as you
        like. The result has one row for each: topic, partition, offset, outcome (done, skipped, retried or dead) and
        error. No group is joined and nothing is committed: Spark's checkpoint tracks progress."""
        from multilane.engines.dataframe.driver import staged

        return staged(self, frame, name, options)

    # --- life --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Consume until SIGTERM, SIGINT or `stop`. Then settle the records in flight, commit and leave the groups. The
        process belongs to this application: `run` tunes its interpreter, and uses uvloop where it is installed."""
        resort = LastResort(self._longest_drain, self._call_on_loop)
        with signals_stop(self.stop, resort.arm), signals_resume(self._on_resume), tuned_interpreter():
            try:
                run_to_end(self.serve())
            finally:
                resort.disarm()

    def _on_resume(self) -> None:
        if self._engine is not None:
            self._engine.on_resume()

    def _longest_drain(self) -> float:
        return max((r.config.rebalance_timeout / 2 for r in self._registrations.values()), default=0.0)

    def _call_on_loop(self, function: Callable[[], object]) -> None:
        """Call it on the loop until the loop is closed: after the engine has ended, tasks that a function has left may
        still block the loop."""
        loop = self._loop
        if loop is None or loop.is_closed():
            function()
            return
        with suppress(RuntimeError):  # closed meanwhile
            loop.call_soon_threadsafe(function)

    def lane_factories(self, observer: Observer = NO_OBSERVER, *, for_rows: bool = False) -> dict[str, LaneFactory]:
        """A factory for the lanes of each consumer, by name, for engines that feed them. `for_rows`: they are fed from
        a DataFrame. Call it inside a running event loop."""
        self._counts, self._subscriptions.has_factories = observer, True
        return {
            name: self._lane_factory(registration.for_rows() if for_rows else registration)
            for name, registration in self._registrations.items()
        }

    def _lane_factory(self, registration: Registration) -> LaneFactory:
        factory = LaneFactory(
            registration,
            self.config.cluster(registration.config.cluster),
            registration.interceptors.within(self._interceptors),
            self._clock,
            pair(self.observer, self._counts),
        ).share_crash_watch(self._crash_watch)
        factory.failures = self._failure_sink or factory.failures
        factory.apply_overrides(self.overrides.of(registration.config.name), ())
        return factory

    def full_registration(self, name: str) -> Registration:
        """The registration of a consumer, with the interceptors of the application."""
        registration = self.registration(name)
        return replace(registration, interceptors=registration.interceptors.within(self._interceptors))

    def error_consumers(self, observer: Observer = NO_OBSERVER) -> ErrorConsumers:
        return ErrorConsumers(
            self.config, self._registrations, self._interceptors, self._clock, pair(self.observer, observer)
        )

    def check_runnable(self) -> None:
        if not self._registrations and not self.config.shovels:
            raise ConfigError("nothing to run: register a function with @app.listener(name)")

    async def serve(self, on_begun: Callable[[], object] | None = None) -> None:
        """Consume on the running event loop, until `stop` or cancellation. `on_begun`: it may begin empty."""
        if self._engine is not None:
            raise ConfigError("this application is already running")
        if on_begun is None:
            self.check_runnable()
        self._loop = asyncio.get_running_loop()
        try:
            with self._subscriptions.served_by(self._build_engine) as self._engine:
                if self._is_stopped:
                    self._engine.stop()
                with self.overrides.applied_by(self._engine.apply_overrides):
                    await self._engine.run(on_begun)
        finally:
            self._engine = None
            self._is_stopped = False
            await self.close_producers()

    def _build_engine(self) -> ProcessEngine:
        if self._failure_sink is not None:  # the owner of the sink logs the progress too
            return self._engine_with(None)
        reporter = ProcessProgress(self._clock, self.observer)
        self.progress = reporter.progress
        with self.failures_to(reporter.progress.failures):
            return self._engine_with(reporter)

    def _engine_with(self, reporter: ProcessProgress | None) -> ProcessEngine:
        factories = self.lane_factories(NO_OBSERVER if reporter is None else reporter.counts)
        lanes = grouped(factories, self.config, self._clock)
        return ProcessEngine(lanes, self.error_consumers(), self._clock, self.observer, reporter)

    async def close_producers(self) -> None:
        """Send all pending messages, then close. The next use creates new producers."""
        if self._producers is not None:
            await asyncio.to_thread(self._producers.close)
            self._producers = None

    def stop(self) -> None:
        """Shut down gracefully; from any thread. A run that has not started ends as soon as it starts."""
        self._is_stopped = True
        if self._engine is not None:
            self._engine.stop()

    # --- at run time -------------------------------------------------------------------------------------------------

    def subscribe(
        self, name: str, function: Function, *, begin: str | datetime | None = None, **options: Unpack[ListenerOptions]
    ) -> Future[None]:
        """Register a listener at run time; from any thread. The future completes when it takes part. A consumer that
        shares begins at the group's position, or at `begin`: `earliest`, `latest` or a time."""
        register = partial(self.listener(name, **options), function)
        return self._subscriptions.begin(name, begin, register, is_running=self.overrides.are_applied)

    def unsubscribe(self, name: str) -> Future[None]:
        """The consumer finishes its records in flight and leaves for good; from any thread. Commits wait for it no
        longer. The future completes when it has left."""
        return self._subscriptions.end(self.registration(name).config.name, is_running=self.overrides.are_applied)

    def drain(self, timeout: float) -> Future[LeftBehind]:
        """Stop, with `timeout` seconds for records in flight; from any thread. The result: how many records of each
        consumer were read and not settled. They are redelivered."""
        return self._subscriptions.drain(timeout, is_running=self.overrides.are_applied)

    # --- overrides ---------------------------------------------------------------------------------------------------

    def pause(self, name: str) -> None:
        """Stop taking new records of a consumer until `resume`; records in flight are finished. From any thread, on
        every engine, until the run ends."""
        self._override(name, is_paused=True)

    def resume(self, name: str) -> None:
        self._override(name, is_paused=False)

    def set_lanes(self, name: str, lanes: int | None) -> None:
        """Set the number of lanes for each partition; None restores the configured number."""
        if lanes is not None and self.config.consumer(name).lanes == 0:
            raise ConfigError(f"{name} handles one record at a time (virtualPartitionCount 0): it has no lanes")
        self._override(name, lanes=lanes)

    def _override(self, name: str, **changes: Any) -> None:
        config = self.config.consumer(name)
        if config.name not in self._registrations:
            raise ConfigError(f"consumer {config.name!r} does not run: it has no listener")
        self.overrides.set(config.name, replace(self.overrides.of(config.name), **changes))

    def overrides_view(self) -> dict[str, dict[str, Any]]:
        """The overrides in effect for each consumer, as JSON values."""
        configured = {name: registration.config.lanes for name, registration in self._registrations.items()}
        return self.overrides.view(configured)

    @contextmanager
    def observed_by(self, observer: Observer) -> Iterator[None]:
        """Adds an observer for runs that begin in this context."""
        before, self.observer = self.observer, pair(self.observer, observer)
        try:
            yield
        finally:
            self.observer = before

    @contextmanager
    def failures_to(self, sink: FailureSink) -> Iterator[None]:
        before, self._failure_sink = self._failure_sink, sink
        try:
            yield
        finally:
            self._failure_sink = before

    @property
    def engine(self) -> ProcessEngine | None:
        """The running engine, to watch or steer it; None between runs."""
        return self._engine
