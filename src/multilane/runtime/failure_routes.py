"""Where the failed records of one consumer go: retry and error topic, the last step, or back into their chain; where
its results go; and what stops or pauses the consumer when most calls fail.

Thread: loop.

A composition root. Owns the publisher of copies, from `open` to `close`, and the breaker or the gate, which all
processors of the consumer share. Never decides about a record: that is `lanes/failing.py`.
"""

from __future__ import annotations

from typing import Final

from multilane.clock import Clock
from multilane.commit.journal import Notes
from multilane.config.app.clients import producer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.lanes.failing import Failing, FailureRoutes
from multilane.lanes.failure_log import FailureSink
from multilane.lanes.failure_report import FailureReport
from multilane.lanes.last_steps import LastStepFunction
from multilane.lanes.watch import Watch
from multilane.listeners.interceptors import InterceptorChain
from multilane.metrics.observer import Observer
from multilane.outcome import backoff
from multilane.outcome.giving_up import GivingUp
from multilane.outcome.in_place import InPlace
from multilane.outcome.next_step import RetryPolicy
from multilane.outcome.publishing import Publisher
from multilane.outcome.shared_producers import SHARED_PRODUCERS
from multilane.runtime.breakers import breaker_of, gate_of
from multilane.runtime.results import ResultsRoute

_PUBLISHER_TIMEOUT: Final = 5.0  # seconds to close a producer that has nothing left to send


class ConsumerFailureRoutes:
    """Make it inside the running loop."""

    def __init__(
        self,
        config: ConsumerGroupConfig,
        cluster: ClusterConfig,
        last_step: LastStepFunction | None,
        clock: Clock,
        observer: Observer,
        in_place: InPlace | None,
    ) -> None:
        """`in_place`: failed records are retried in place, and the configuration has no retry topic."""
        self._config = config
        self._cluster = cluster
        self._last_step = last_step
        self._clock = clock
        self._observer = observer
        self._in_place = in_place
        self._retry_policy = retry_policy_of(config, cluster) if in_place is None else in_place.retry_policy
        has_way_out = config.error is not None or last_step is not None or in_place is not None
        drops = config.on_failure == "drop"
        self._keeping = None if drops or has_way_out else config.retry_backoff or backoff.RetryDelay("exponential")
        self._breaker = breaker_of(config)
        self.gate: Final = gate_of(config, clock, observer) if in_place is None else None
        self._giving_up = None if self.gate is None else GivingUp(config.retry_backoff)
        self._publisher: Publisher | None = None

    @property
    def retries_in_place(self) -> bool:
        """Whether a failed record may have to stay in its chain."""
        again = self._in_place is not None and self._in_place.retries > 0
        return again or self._keeping is not None or self.gate is not None

    @property
    def puts_back(self) -> bool:
        """Whether a failed record may have to be put back to those that wait."""
        stays = self._keeping is not None or (self._in_place is not None and self._in_place.waits)
        return stays or (self.gate is not None and self._config.ack == "manual")

    def open(self) -> None:
        """It may be called again."""
        producer = producer_properties(self._cluster, durable=True)
        self._publisher = self._publisher or Publisher(lambda: SHARED_PRODUCERS.share(producer))

    @property
    def results(self) -> ResultsRoute | None:
        """Where results go, if the configuration says so; from `open` on."""
        if self._publisher is None or self._config.results is None:
            return None
        return ResultsRoute(self._config.results.topic, self._publisher)

    async def close(self) -> None:
        if self._publisher is not None:
            await self._publisher.close(_PUBLISHER_TIMEOUT)

    def failing(self, sink: FailureSink, interceptors: InterceptorChain, notes: Notes | None, watch: Watch) -> Failing:
        """What hands over the failed records of one processor."""
        if self._publisher is None:
            raise AssertionError("failed records have no publisher before open()")
        report = FailureReport(self._config.name, sink, self._observer)
        targets = (self._last_step, self._breaker, self._in_place, self._keeping, self.gate, self._giving_up)
        routes = FailureRoutes(self._retry_policy, self._publisher, *targets, report=report, watch=watch)
        return Failing(routes, interceptors, self._clock, self._observer, notes)


def retry_policy_of(config: ConsumerGroupConfig, cluster: ClusterConfig) -> RetryPolicy:
    return RetryPolicy(
        config.topic,
        config.retry,
        config.error,
        config.retry_count,
        cluster.error.max_error_count if cluster.error is not None else 1,
        keeps_partition=config.retry_order == "key" and config.retry is not None,
        with_stack=config.error_stack,
    )
