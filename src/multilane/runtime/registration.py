"""What an application registers for one of its consumers: its functions and interceptors.

Thread: any (values).

Owns the checks that need a function and its configuration side by side: a function for single records does not fit a
consumer of batches, and is refused when it is registered, not when the first record arrives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypedDict

from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.errors import ConfigError
from multilane.lanes.last_steps import LastStepFunction
from multilane.lanes.partition_events import PartitionFunctions
from multilane.listeners.interceptors import ConsumerInterceptor, ErrorInterceptor, Tracer
from multilane.listeners.signature import ListenerKind, Signature, Wants, location_of, read_signature
from multilane.listeners.window import Select, Window, newest_of_each_key
from multilane.runtime.payloads import check_payload
from multilane.wire.records.record import Record

Function = Callable[..., Any]


class ListenerOptions(TypedDict, total=False):
    """The options of `@app.listener`."""

    retry: Function  # for records from the retry topic (default: the listener itself)
    batch_retry: Function  # the same, for a batch listener
    error: Function  # for records from the error topic (default: they go back to the retry topic)
    select: Select  # which records of a window are handled
    route: Callable[[Record], str]  # the lane class of a record
    interceptors: Interceptors  # they run inside those of the application


@dataclass(frozen=True, slots=True, kw_only=True)
class Interceptors:
    """What surrounds the calls of a listener, for the whole application or for one consumer."""

    consume: tuple[ConsumerInterceptor, ...] = ()  # before each record
    errors: tuple[ErrorInterceptor, ...] = ()  # after each failure
    tracers: tuple[Tracer, ...] = ()
    last_step: LastStepFunction | None = None  # for records that no topic takes
    partitions: PartitionFunctions = field(default_factory=PartitionFunctions)

    def within(self, outer: Interceptors) -> Interceptors:
        """The application's interceptors first, then the consumer's own. The consumer's last step wins."""
        return Interceptors(
            consume=outer.consume + self.consume,
            errors=outer.errors + self.errors,
            tracers=outer.tracers + self.tracers,
            last_step=self.last_step or outer.last_step,
            partitions=PartitionFunctions(
                assigned=outer.partitions.assigned + self.partitions.assigned,
                revoked=outer.partitions.revoked + self.partitions.revoked,
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    config: ConsumerGroupConfig
    function: Function
    retry: Function | None = None
    error: Function | None = None
    select: Select | None = None
    route: Callable[[Record], str] | None = None
    interceptors: Interceptors = field(default_factory=Interceptors)

    def for_rows(self) -> Registration:
        """The registration for rows of a DataFrame. Nothing is committed, so there is nothing to audit. The result has
        a row for a failed record that no topic takes, so none is retried in place, and no outage is waited for. No
        retry partition is read, so order is not kept across a retry."""
        breaker = self.config.error_breaker
        changes: dict[str, object] = {"audit": None, "on_failure": "drop", "retry_order": "none"}
        changes |= {"error_breaker": None} if breaker is not None and breaker.action == "pause" else {}
        return replace(self, config=self.config.model_copy(update=changes))

    @property
    def window(self) -> Window:
        config = self.config
        select = self.select or (newest_of_each_key if config.unique else None)
        return Window(config.batch_size, config.batch_latency, select) if config.batch_size > 1 else Window()

    def waits_as_rows(self, topics: Sequence[str]) -> bool:
        """Whether the lanes need only the key of a record before it is in a window, for a processor of these topics. A
        processor of two topics (order survives a retry) inspects each record."""
        config = self.config
        is_by_key = config.order_by == "key" and config.lane_hash == "key"
        is_ordered = is_by_key or (config.order_by == "partition" and self.window.select is None)
        is_one_class = config.lanes > 0 and self.route is None and not config.lane_classes
        is_due = config.retry_backoff is None or not config.retry_backoff.delay or config.retry not in topics
        has_windows = not self.window.is_single and len(topics) == 1
        return has_windows and is_ordered and is_one_class and is_due and config.max_in_flight_bytes is None


def checked(registration: Registration, cluster: ClusterConfig) -> Registration:
    """Return the registration. Raises a ConfigError if its functions do not fit its configuration."""
    config = registration.config
    for function in (registration.function, registration.retry):
        if function is not None:
            signature = read_signature(function)
            _check_function(config, function, signature)
            check_payload(cluster, function, signature)
    if registration.retry is not None:
        _check_kinds(config, registration.function, registration.retry)
    if registration.error is not None:
        _check_error_function(config, registration.error)
    if registration.select is not None and config.batch_size <= 1:
        raise ConfigError(f"consumer {config.name!r}: select needs a window of records: set batchSize above 1")
    if config.lane_classes and registration.route is None:
        names = ", ".join(config.lane_classes)
        raise ConfigError(f"consumer {config.name!r} has laneClasses ({names}): give listener() a route function")
    if config.ack == "manual" and config.retry_order == "key" and config.retry is not None:
        raise ConfigError(
            f"consumer {config.name!r}: with ack: manual the next record of a key starts before the last one is "
            "acknowledged, so order cannot survive a retry: set retryOrder: none, or ack: auto"
        )
    if registration.route is not None and not config.lane_classes:
        raise ConfigError(f"consumer {config.name!r}: a route function needs laneClasses in the configuration")
    return registration


def _check_error_function(config: ConsumerGroupConfig, function: Function) -> None:
    if [wanted for _, wanted in read_signature(function).parameters] != [Wants.RECORD]:
        raise ConfigError(
            f"consumer {config.name!r}: {location_of(function)} handles records of the error topic and must take one "
            "Record and nothing else: their payloads may not be decodable"
        )


def _check_kinds(config: ConsumerGroupConfig, function: Function, retry: Function) -> None:
    kinds = read_signature(function).kind, read_signature(retry).kind
    if (kinds[0] is ListenerKind.SINGLE) != (kinds[1] is ListenerKind.SINGLE):
        raise ConfigError(
            f"consumer {config.name!r}: {location_of(retry)} is for {kinds[1].value} and {location_of(function)} for "
            f"{kinds[0].value}; both must take the same"
        )


def _check_function(config: ConsumerGroupConfig, function: Function, signature: Signature) -> None:
    where = f"consumer {config.name!r}, {location_of(function)}"
    is_batch = config.batch_size > 1
    if signature.kind is not ListenerKind.SINGLE and not is_batch:
        raise ConfigError(f"{where}: it takes several records at once: set batchSize above 1")
    if signature.kind is ListenerKind.SINGLE and is_batch and not config.unique:
        raise ConfigError(
            f"{where}: batchSize is {config.batch_size}, so it must take list[Record] or pyarrow.RecordBatch"
        )
    if signature.wants(Wants.ACKNOWLEDGEMENT) and config.ack != "manual":
        raise ConfigError(f"{where}: it takes an Acknowledgement: set ack: manual, or remove the parameter")
    if config.ack == "manual" and not signature.wants(Wants.ACKNOWLEDGEMENT):
        raise ConfigError(f"{where}: ack is manual, so it needs a parameter of type Acknowledgement")
    if config.processes and signature.is_async:
        raise ConfigError(f"{where}: processes run `def` functions only; a coroutine runs on the event loop")
    if config.processes and config.ack == "manual":
        raise ConfigError(f"{where}: another process cannot acknowledge a record: set ack: auto")
