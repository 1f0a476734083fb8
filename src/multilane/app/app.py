"""The application: a configuration, the functions for its consumers, and their life.

Thread: any for registering and `stop`; `run` blocks its own, `serve` is for an event loop that exists already.

Owns what was registered and, while it runs, the groups. Registering checks a function against its configuration at
once. Nothing connects before the application runs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

from multilane.app.last_resort import LastResort
from multilane.app.runtime_overrides import RuntimeOverrides
from multilane.app.signals import signals_resume, signals_stop
from multilane.clock import Clock, SystemClock
from multilane.config.app.advice import advice
from multilane.config.app.advising import gives_advice
from multilane.config.app.clients import producer_properties
from multilane.config.app.kafka_names import fault, given_properties, owner
from multilane.config.app.loading import MEMBER_VARIABLE, load_app
from multilane.config.app.model import AppConfig
from multilane.engines.process.driver import ProcessEngine
from multilane.engines.process.progress import ProcessProgress
from multilane.error_consumer.wiring import ErrorConsumers
from multilane.errors import ConfigError, ConfigProblems
from multilane.lanes.failing import LastStepFunction
from multilane.lanes.failure_log import FailureSink
from multilane.lanes.interpreter import run_to_end, tuned_interpreter
from multilane.lanes.partition_events import PartitionFunction
from multilane.lanes.progress import Progress
from multilane.listeners.interceptors import ConsumerInterceptor, ErrorInterceptor, Tracer
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer, ObserverPair
from multilane.runtime.crash_watch import CrashWatch
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.producing import ProducerInterceptor, Producers
from multilane.runtime.registration import Function, Interceptors, ListenerOptions, Registration, checked

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from multilane.engines.dataframe.driver import StageOptions

log = logger(__name__)

F = TypeVar("F", bound=Function)
FilePath = str | os.PathLike[str]


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
        """The files of a configuration, one or several, or a configuration that is loaded already. `properties` are
        Kafka's, for every client: what cannot stand in a file, as `sasl.oauthbearer.token.provider`."""
        self._sources = files if isinstance(files, AppConfig | str | os.PathLike) else tuple(files)
        self._profile = profile
        self._properties = properties or {}
        self.config = self._configured(os.environ)
        for hint in advice(self.config) if gives_advice() else ():
            log.warning("%s", hint)
        self._clock = clock or SystemClock()
        self.observer = observer
        self._registrations: dict[str, Registration] = {}
        self._interceptors = Interceptors()
        self._producer_interceptors: list[ProducerInterceptor] = []
        self._producers: Producers | None = None
        self._engine: ProcessEngine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None  # of the last run
        self._is_stopped = False
        self.overrides = RuntimeOverrides()
        self._failure_sink: FailureSink | None = None
        self.progress: Progress | None = None  # of the run that goes on, or of the last one

    def _configured(self, env: Mapping[str, str]) -> AppConfig:
        files = self._sources
        loaded = files if isinstance(files, AppConfig) else load_app(files, self._profile, env)
        return _with_properties(loaded, self._properties)

    def config_of(self, member: int) -> AppConfig | None:
        """As one of several members of this app reads it, which know their number; None where it reads no files."""
        if isinstance(self._sources, AppConfig):
            return None
        return self._configured({**os.environ, MEMBER_VARIABLE: str(member)})

    # --- registering -------------------------------------------------------------------------------------------------

    def listener(self, name: str, **options: Unpack[ListenerOptions]) -> Callable[[F], F]:
        """The function for a consumer of the configuration; others for its retry and error topics, if they differ."""
        config = self.config.consumer(name)
        if config.name in self._registrations:
            raise ConfigError(f"consumer {config.name!r} has a listener already")
        unknown = sorted(options.keys() - ListenerOptions.__annotations__.keys())
        if unknown:
            known = ", ".join(sorted(ListenerOptions.__annotations__))
            raise TypeError(f"consumer {config.name!r}: listener() has no option {unknown[0]!r}. Options: {known}")
        if "retry" in options and "batch_retry" in options:
            raise ConfigError(f"consumer {config.name!r}: give either retry or batch_retry, as the listener's kind is")

        def register(function: F) -> F:
            self._registrations[config.name] = checked(
                Registration(
                    config=config,
                    function=function,
                    retry=options.get("retry") or options.get("batch_retry"),
                    error=options.get("error"),
                    select=options.get("select"),
                    route=options.get("route"),
                    interceptors=options.get("interceptors") or Interceptors(),
                )
            )
            return function

        return register

    @property
    def consumers(self) -> tuple[str, ...]:
        """The names of those that have a function."""
        return tuple(self._registrations)

    def registration(self, name: str) -> Registration:
        """What was registered for a consumer of the configuration."""
        config = self.config.consumer(name)
        if config.name not in self._registrations:
            raise ConfigError(f"consumer {config.name!r} has no listener: register one with @app.listener({name!r})")
        return self._registrations[config.name]

    @property
    def functions(self) -> list[Function]:
        """The listeners."""
        return [registration.function for registration in self._registrations.values()]

    def intercept(self, *interceptors: ConsumerInterceptor) -> None:
        """For every consumer, before its own."""
        self._interceptors = replace(self._interceptors, consume=self._interceptors.consume + interceptors)

    def intercept_errors(self, *interceptors: ErrorInterceptor) -> None:
        self._interceptors = replace(self._interceptors, errors=self._interceptors.errors + interceptors)

    def trace(self, *tracers: Tracer) -> None:
        self._interceptors = replace(self._interceptors, tracers=self._interceptors.tracers + tracers)

    def intercept_producers(self, *interceptors: ProducerInterceptor) -> None:
        if self._producers is not None:
            raise ConfigError("producer interceptors come before the first use of the producers")
        self._producer_interceptors += interceptors

    def on_assigned(self, function: PartitionFunction) -> PartitionFunction:
        """A decorator: called with `Partitions` when a group gives some to this process, before their first record."""
        known = self._interceptors.partitions
        self._interceptors = replace(
            self._interceptors, partitions=replace(known, assigned=(*known.assigned, function))
        )
        return function

    def on_revoked(self, function: PartitionFunction) -> PartitionFunction:
        """A decorator: called when they go, after their last record and before anybody else gets them. If they were
        lost (`is_lost`), others may have them already."""
        known = self._interceptors.partitions
        functions = replace(known, revoked=(*known.revoked, function))
        self._interceptors = replace(self._interceptors, partitions=functions)
        return function

    def last_step(self, function: LastStepFunction) -> LastStepFunction:
        """A decorator: where records end that no topic takes any more."""
        self._interceptors = replace(self._interceptors, last_step=function)
        return function

    # --- producing ---------------------------------------------------------------------------------------------------

    @property
    def producers(self) -> Producers:
        """The producers of the configuration, made on first use and closed with the application."""
        if self._producers is None:
            self._producers = Producers(
                {name: (entry.topic, entry.cluster) for name, entry in self.config.producers.items()},
                {name: producer_properties(c, durable=False) for name, c in self.config.clusters.items()},
                interceptors=self._producer_interceptors,
            )
        return self._producers

    def stream(
        self, name: str, model: Any = None, *, spark: SparkSession | None = None, **options: object
    ) -> DataFrame:
        """The topic of a consumer as a streaming DataFrame of Spark's, for plain Spark SQL; no listener runs. A model
        (pydantic, JSON Schema, StructType, `Avro`) gives it a column `payload`; options are those of
        `format("multilane")`."""
        from multilane.spark.topic_frames import stream_of

        group = self.config.consumer(name)
        return stream_of(spark, group, self.config.cluster(group.cluster), model, options)

    def handle(self, frame: DataFrame, name: str, **options: Unpack[StageOptions]) -> DataFrame:
        """Rows of a DataFrame, of a batch or a stream, on the lanes of a consumer: its listener runs in Spark's workers
        for each row, in the order of its key. The rows are Kafka's, with the columns of Spark's source, filtered or
        changed as you like; what comes is a row for each: topic, partition, offset, outcome (done, skipped, retried or
        dead) and error. No group is joined and nothing is committed: Spark's checkpoint knows what is done."""
        from multilane.engines.dataframe.driver import staged

        return staged(self, frame, name, options)

    # --- life --------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Consume until SIGTERM or SIGINT, or `stop`; then settle what is in work, commit and leave. The process is
        taken as this application's: its interpreter is tuned, and uvloop is used where it is installed."""
        resort = LastResort(self._longest_drain, self._ask_loop)
        with signals_stop(self.stop, resort.arm), signals_resume(self._look_up), tuned_interpreter():
            try:
                run_to_end(self.serve())
            finally:
                resort.disarm()

    def _look_up(self) -> None:
        if self._engine is not None:
            self._engine.look_up()

    def _longest_drain(self) -> float:
        return max((r.config.rebalance_timeout / 2 for r in self._registrations.values()), default=0.0)

    def _ask_loop(self, what: Callable[[], object]) -> None:
        """Until the loop is closed: tasks that a function has left may block it when the engine is over."""
        loop = self._loop
        if loop is None or loop.is_closed():
            what()
            return
        with suppress(RuntimeError):  # closed meanwhile
            loop.call_soon_threadsafe(what)

    def lane_factories(self, observer: Observer = NO_OBSERVER, *, for_rows: bool = False) -> dict[str, LaneFactory]:
        """What each consumer needs for its lanes, by name; for engines that have other ways to feed them, `for_rows` of
        a DataFrame too. Inside a running event loop."""
        crashes = CrashWatch(self._clock)
        made = {
            name: LaneFactory(
                registration.for_rows() if for_rows else registration,
                self.config.cluster(registration.config.cluster),
                registration.interceptors.within(self._interceptors),
                self._clock,
                ObserverPair(self.observer, observer),
            ).sharing(crashes)
            for name, registration in self._registrations.items()
        }
        for lane_factory in made.values():
            lane_factory.failures = self._failure_sink or lane_factory.failures
        return made

    def registered(self, name: str) -> Registration:
        """What was said about one of its consumers, with what surrounds all of them."""
        registration = self.registration(name)
        return replace(registration, interceptors=registration.interceptors.within(self._interceptors))

    def error_consumers(self, observer: Observer = NO_OBSERVER) -> ErrorConsumers:
        return ErrorConsumers(
            self.config, self._registrations, self._interceptors, self._clock, ObserverPair(self.observer, observer)
        )

    def check_runnable(self) -> None:
        if not self._registrations and not self.config.shovels:
            raise ConfigError("there is nothing to run: register a function with @app.listener(name)")

    async def serve(self) -> None:
        """The same within a running event loop, until `stop` or cancellation."""
        if self._engine is not None:
            raise ConfigError("this application runs already")
        self.check_runnable()
        self._loop = asyncio.get_running_loop()
        self._engine = self._engine_here()
        if self._is_stopped:
            self._engine.stop()
        try:
            with self.overrides.heard_by(self._engine.steer):
                await self._engine.run()
        finally:
            self._engine = None
            self._is_stopped = False
            await self.close_producers()

    def _engine_here(self) -> ProcessEngine:
        if self._failure_sink is not None:  # whoever hears of failures logs how the run goes
            return ProcessEngine(self.lane_factories(), self.error_consumers(), self._clock, self.observer)
        watch = ProcessProgress(self._clock, self.observer)
        self.progress = watch.progress
        with self.failures_to(watch.progress.failures):
            return ProcessEngine(
                self.lane_factories(watch.news), self.error_consumers(), self._clock, self.observer, watch
            )

    async def close_producers(self) -> None:
        """What was given to them is sent before; they are made again on their next use."""
        if self._producers is not None:
            await asyncio.to_thread(self._producers.close)
            self._producers = None

    def stop(self) -> None:
        """End, in order; from any thread. One that has not begun yet ends as soon as it has."""
        self._is_stopped = True
        if self._engine is not None:
            self._engine.stop()

    # --- steering ----------------------------------------------------------------------------------------------------

    def pause(self, name: str) -> None:
        """A consumer takes nothing more until `resume`; what is in work ends. From any thread, on every engine, for the
        time of the run."""
        self._steer(name, is_paused=True)

    def resume(self, name: str) -> None:
        self._steer(name, is_paused=False)

    def set_lanes(self, name: str, lanes: int | None) -> None:
        """So many lanes for each partition; None: as the configuration says."""
        if lanes is not None and self.config.consumer(name).lanes == 0:
            raise ConfigError(f"{name} handles one record after the other (virtualPartitionCount 0): it has no lanes")
        self._steer(name, lanes=lanes)

    def _steer(self, name: str, **changes: Any) -> None:
        config = self.config.consumer(name)
        if config.name not in self._registrations:
            raise ConfigError(f"consumer {config.name!r} does not run: it has no listener")
        self.overrides.steer(config.name, replace(self.overrides.of(config.name), **changes))

    def steering(self) -> dict[str, dict[str, Any]]:
        """How each consumer is steered now."""
        return {
            name: {
                "paused": self.overrides.of(name).is_paused,
                "lanes": self.overrides.of(name).lanes or registration.config.lanes,
                "configured": registration.config.lanes,
            }
            for name, registration in self._registrations.items()
        }

    @contextmanager
    def observed_by(self, observer: Observer) -> Iterator[None]:
        """One more who is told what happens in runs that begin within."""
        before, self.observer = self.observer, ObserverPair(self.observer, observer)
        try:
            yield
        finally:
            self.observer = before

    @contextmanager
    def failures_to(self, sink: FailureSink) -> Iterator[None]:
        """Failures of lanes that are made within are reported there."""
        before, self._failure_sink = self._failure_sink, sink
        try:
            yield
        finally:
            self._failure_sink = before

    @property
    def engine(self) -> ProcessEngine | None:
        """What runs, while it does: for those who watch or steer it."""
        return self._engine


def _with_properties(config: AppConfig, properties: Mapping[str, object]) -> AppConfig:
    """Every cluster with these properties besides its own, which count more."""
    if not properties:
        return config
    given = given_properties(properties)
    wrong = [said for key, value in given.items() if (said := fault(key, value))]
    if wrong:
        raise ConfigProblems(wrong)
    if any(owner(key) == "bootstrap.servers" for key in given):
        raise ConfigError("properties: bootstrap.servers is said by the `brokers` of each cluster; leave it out")
    clusters = {
        name: cluster.model_copy(update={"properties": {**given, **cluster.properties}})
        for name, cluster in config.clusters.items()
    }
    return config.model_copy(update={"clusters": clusters})
