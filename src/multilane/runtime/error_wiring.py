"""The error consumers of an application: one for each cluster that has an `errorConfig`, and the shovels.

Thread: loop.

A composition root. The error topics of a cluster are those of its registered consumers that did not opt out; whose
records may go back where is taken from the configuration.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from multilane.client.produce.producer import Producer
from multilane.clock import Clock
from multilane.config.app.clients import error_consumer_properties, producer_properties
from multilane.config.app.cluster import ClusterConfig, ErrorConfig
from multilane.config.app.model import AppConfig, ShovelConfig
from multilane.config.app.schedule import Schedule
from multilane.errors import GivenUp
from multilane.hooks import Observer
from multilane.lanes.failing import LastStepFunction
from multilane.listeners.context import context_of
from multilane.outcome.error_policy import ErrorRules, ErrorTopic, error_topics, shovel_topics
from multilane.outcome.flow import Flow
from multilane.outcome.publishing import Publisher
from multilane.runtime.error_consumer import ErrorConsumer
from multilane.runtime.error_share import ErrorSteps
from multilane.runtime.registration import Around, Function, Registration
from multilane.wire.records.record import Record


class ErrorConsumers:
    """By the name of their group; `start` makes and starts them."""

    def __init__(
        self,
        config: AppConfig,
        registrations: Mapping[str, Registration],
        around: Around,
        clock: Clock,
        observer: Observer,
    ) -> None:
        self._config = config
        self._registrations = registrations
        self._around = around
        self._clock = clock
        self._observer = observer
        self._publishers: dict[str, Publisher] = {}
        self.consumers: dict[str, ErrorConsumer] = {}

    async def start(self) -> None:
        for cluster in self._config.clusters.values():
            if cluster.error is not None:
                self._of_cluster(cluster, cluster.error)
        for shovel in self._config.shovels.values():
            self._of_shovel(shovel)
        for consumer in self.consumers.values():
            consumer.start()

    async def stop(self) -> None:
        await asyncio.gather(*(consumer.stop() for consumer in self.consumers.values()))
        await asyncio.gather(*(publisher.close(5.0) for publisher in self._publishers.values()))

    # --- the two kinds -----------------------------------------------------------------------------------------------

    def _of_cluster(self, cluster: ClusterConfig, errors: ErrorConfig) -> None:
        flows = dict(self._flows(cluster, errors))
        handlers = {flow: r.error for flow, r in flows.items() if r.error is not None}
        topics = error_topics(flows, handlers)
        if not topics:
            return
        last_step = self._last_step(errors.group_id, flows.values())
        self._add(errors, cluster, _rules(errors, topics), handlers, last_step)

    def _flows(self, cluster: ClusterConfig, errors: ErrorConfig) -> Iterator[tuple[Flow, Registration]]:
        for registration in self._registrations.values():
            group = registration.config
            if group.cluster.casefold() == cluster.name.casefold() and not group.error_consumer_disabled:
                flow = Flow(group.topic, group.retry, group.error, group.retry_count, errors.max_error_count)
                yield flow, registration

    def _of_shovel(self, shovel: ShovelConfig) -> None:
        cluster = self._config.cluster(shovel.cluster)
        known = [r.config for r in self._registrations.values()]
        allowed = [topic for group in known for topic in (group.topic, group.retry) if topic is not None]
        rules = _rules(shovel, shovel_topics(shovel.topics, shovel.target_topic, allowed))
        self._add(shovel, cluster, rules, {}, self._last_step(shovel.group_id, ()))

    def _add(
        self,
        config: ErrorConfig | ShovelConfig,
        cluster: ClusterConfig,
        rules: ErrorRules,
        handlers: Mapping[Flow, Function],
        last_step: Callable[[Record, str], Any] | None,
    ) -> None:
        publisher = self._publisher(cluster.name, cluster)
        steps = ErrorSteps(publisher, handlers, last_step, config.max_processing_time, observer=self._observer)
        self.consumers[config.group_id] = ErrorConsumer(
            error_consumer_properties(config, cluster),
            rules,
            steps,
            schedule=Schedule.parse(config.cron, config.time_zone),
            clock=self._clock,
        )

    def _last_step(self, group: str, users: Iterable[Registration]) -> Callable[[Record, str], Any] | None:
        """The application's, or that of the only consumer of an error topic; it wants a context and an error."""
        own: dict[str | None, set[LastStepFunction | None]] = {}
        for user in users:
            own.setdefault(user.config.error, set()).add(user.around.last_step)
        nearest = {topic: steps.pop() for topic, steps in own.items() if len(steps) == 1}
        if self._around.last_step is None and not any(nearest.values()):
            return None

        def last_step(record: Record, reason: str) -> Any:
            function = nearest.get(record.topic) or self._around.last_step
            if function is None:
                raise GivenUp(f"{reason}; its consumer has no last step")
            return function(context_of(record, group), record, GivenUp(reason))

        return last_step

    def _publisher(self, name: str, cluster: ClusterConfig) -> Publisher:
        if name not in self._publishers:
            properties = producer_properties(cluster, durable=True)
            self._publishers[name] = Publisher(lambda: Producer(properties))
        return self._publishers[name]


def _rules(config: ErrorConfig | ShovelConfig, topics: Mapping[str, ErrorTopic]) -> ErrorRules:
    return ErrorRules(
        topics,
        config.max_error_count,
        config.close_when_no_message,
        config.close_when_message_is_new,
        dead=config.dead,
        counts_rounds=isinstance(config, ShovelConfig),
    )
