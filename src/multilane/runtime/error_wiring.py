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
from multilane.outcome.error_policy import ErrorRules, error_topics, shovel_topics
from multilane.outcome.flow import Flow
from multilane.outcome.publishing import Publisher
from multilane.runtime.error_consumer import ErrorConsumer
from multilane.runtime.error_share import ErrorSteps
from multilane.runtime.registration import Around, Registration
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
        for name, cluster in self._config.clusters.items():
            if cluster.error is not None:
                self._of_cluster(name, cluster, cluster.error)
        for shovel in self._config.shovels.values():
            self._of_shovel(shovel)
        for consumer in self.consumers.values():
            consumer.start()

    async def stop(self) -> None:
        await asyncio.gather(*(consumer.stop() for consumer in self.consumers.values()))
        await asyncio.gather(*(publisher.close(5.0) for publisher in self._publishers.values()))

    # --- the two kinds -----------------------------------------------------------------------------------------------

    def _of_cluster(self, name: str, cluster: ClusterConfig, errors: ErrorConfig) -> None:
        flows = dict(self._flows(cluster, errors))
        handlers = {flow: r.error for flow, r in flows.items() if r.error is not None}
        topics = error_topics(flows, handlers)
        if not topics:
            return
        rules = ErrorRules(
            topics,
            errors.max_error_count,
            errors.close_when_no_message,
            errors.close_when_message_is_new,
            dead=errors.dead,
        )
        steps = ErrorSteps(
            self._publisher(name, cluster),
            handlers,
            self._last_step(errors.group_id, flows.values()),
            errors.max_processing_time,
            observer=self._observer,
        )
        self._add(errors, cluster, rules, steps)

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
        rules = ErrorRules(
            shovel_topics(shovel.topics, shovel.target_topic, allowed),
            shovel.max_error_count,
            shovel.close_when_no_message,
            shovel.close_when_message_is_new,
            dead=shovel.dead,
            counts_rounds=True,
        )
        steps = ErrorSteps(
            self._publisher(cluster.name, cluster),
            {},
            self._last_step(shovel.group_id, ()),
            shovel.max_processing_time,
            observer=self._observer,
        )
        self._add(shovel, cluster, rules, steps)

    def _add(
        self, config: ErrorConfig | ShovelConfig, cluster: ClusterConfig, rules: ErrorRules, steps: ErrorSteps
    ) -> None:
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
