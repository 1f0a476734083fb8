"""The error consumers of an application: one for each cluster that has an `errorConfig`, and the shovels.

Thread: loop.

A composition root. Reads the error topics of a cluster's registered consumers that did not opt out. The configuration
decides which topics their records may return to, including consumers that run in other processes. Owns the publishers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from multilane.clock import Clock
from multilane.config.app.clients import error_consumer_properties, producer_properties
from multilane.config.app.cluster import ClusterConfig, ErrorConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.model import AppConfig, ShovelConfig
from multilane.config.app.schedule import Schedule
from multilane.error_consumer.consumer import ErrorConsumer
from multilane.error_consumer.error_partition import ErrorSteps
from multilane.errors import GivenUp
from multilane.lanes.last_steps import LastStepFunction
from multilane.listeners.context import Context, context_of
from multilane.listeners.signature import is_async
from multilane.metrics.observer import Observer
from multilane.outcome.error_policy import ErrorRules, ErrorTopic, error_topics, shovel_topics
from multilane.outcome.next_step import RetryPolicy
from multilane.outcome.publishing import Publisher
from multilane.outcome.shared_producers import SHARED_PRODUCERS
from multilane.runtime.registration import Function, Interceptors, Registration
from multilane.wire.records.record import Record


class ErrorConsumers:
    """`start` creates and starts them."""

    def __init__(
        self,
        config: AppConfig,
        registrations: Mapping[str, Registration],
        interceptors: Interceptors,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._config = config
        self._registrations = registrations
        self._interceptors = interceptors
        self._clock = clock
        self._observer = observer
        self._publishers: dict[str, Publisher] = {}
        self.consumers: list[ErrorConsumer] = []

    async def start(self) -> None:
        for cluster in self._config.clusters.values():
            if cluster.error is not None:
                self._of_cluster(cluster, cluster.error)
        for shovel in self._config.shovels.values():
            self._of_shovel(shovel)
        for consumer in self.consumers:
            consumer.start()

    async def stop(self) -> None:
        await asyncio.gather(*(consumer.stop() for consumer in self.consumers))
        await asyncio.gather(*(publisher.close(5.0) for publisher in self._publishers.values()))

    # --- the two kinds -----------------------------------------------------------------------------------------------

    def _of_cluster(self, cluster: ClusterConfig, errors: ErrorConfig) -> None:
        retry_policies = [
            RetryPolicy(
                group.topic, group.retry, group.error, group.retry_count, errors.max_error_count, group=group.name
            )
            for group in self._groups_of(cluster.name)
            if not group.error_consumer_disabled
        ]
        here = {
            retry_policy: self._registrations[retry_policy.group]
            for retry_policy in retry_policies
            if retry_policy.group in self._registrations
        }
        handlers = {retry_policy: r.error for retry_policy, r in here.items() if r.error is not None}
        read = {retry_policy.error for retry_policy in here}
        topics = {name: topic for name, topic in error_topics(retry_policies, handlers).items() if name in read}
        if not topics:
            return
        users = {topic: [r for retry_policy, r in here.items() if retry_policy.error == topic] for topic in topics}
        self._add(errors, cluster, _rules(errors, topics), handlers, users)

    def _groups_of(self, cluster: str) -> list[ConsumerGroupConfig]:
        return [g for g in self._config.consumers.values() if g.cluster.casefold() == cluster.casefold()]

    def _of_shovel(self, shovel: ShovelConfig) -> None:
        cluster = self._config.cluster(shovel.cluster)
        known = self._groups_of(shovel.cluster)
        allowed = [topic for group in known for topic in (group.topic, group.retry) if topic is not None]
        rules = _rules(shovel, shovel_topics(shovel.topics, shovel.target_topic, allowed))
        self._add(shovel, cluster, rules, {}, {topic: () for topic in rules.topics})

    def _add(
        self,
        config: ErrorConfig | ShovelConfig,
        cluster: ClusterConfig,
        rules: ErrorRules,
        handlers: Mapping[RetryPolicy, Function],
        users: Mapping[str, Iterable[Registration]],
    ) -> None:
        """`users`: the consumers of each error topic."""
        publisher = self._publisher(cluster.name, cluster)
        chosen = {topic: self._last_step(their) for topic, their in users.items()}
        last_steps = {topic: _called_for(config.group_id, step) for topic, step in chosen.items() if step is not None}
        steps = ErrorSteps(publisher, handlers, last_steps, config.max_processing_time, observer=self._observer)
        consumer = ErrorConsumer(
            error_consumer_properties(config, cluster),
            rules,
            steps,
            schedule=Schedule.parse(config.cron, config.time_zone),
            clock=self._clock,
        )
        self.consumers.append(consumer)

    def _last_step(self, users: Iterable[Registration]) -> LastStepFunction | None:
        """The last step of the consumers of an error topic if they share one; else the application's."""
        own = {user.interceptors.last_step for user in users}
        nearest = (own.pop() if len(own) == 1 else None) or self._interceptors.last_step
        return nearest or (_undecided if own else None)

    def _publisher(self, name: str, cluster: ClusterConfig) -> Publisher:
        if name not in self._publishers:
            properties = producer_properties(cluster, durable=True)
            self._publishers[name] = Publisher(lambda: SHARED_PRODUCERS.share(properties))
        return self._publishers[name]


def _called_for(group: str, function: LastStepFunction) -> Callable[[Record, str], Any]:
    """Adapt a last step, which takes a context and an error. Stays a coroutine function if it is one: only that can be
    cancelled when it takes too long."""

    async def call_async(record: Record, reason: str) -> None:
        await function(context_of(record, group), record, GivenUp(reason))

    def call(record: Record, reason: str) -> Any:
        return function(context_of(record, group), record, GivenUp(reason))

    return call_async if is_async(function) else call


def _undecided(context: Context, record: Record, error: BaseException) -> None:
    raise GivenUp(f"{error}; the consumers of {record.topic} have different last steps, and the application has none")


def _rules(config: ErrorConfig | ShovelConfig, topics: Mapping[str, ErrorTopic]) -> ErrorRules:
    return ErrorRules(
        topics,
        config.max_error_count,
        config.close_when_no_message,
        config.close_when_message_is_new,
        dead=config.dead,
        counts_rounds=isinstance(config, ShovelConfig),
    )
