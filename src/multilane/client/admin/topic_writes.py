"""Changes topics through confluent-kafka's admin client.

Thread: application; a lock guards the creation of the client.

Owns the client, which is loaded and started with the first change. Never reads: that is the job of multilane's own
protocol code.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final

from multilane.client.produce.librdkafka import (
    AUTHENTICATION,
    SSL,
    SecretMask,
    connection_settings,
    error_from,
    raised_error,
    secrets_of,
    start_client,
    survive_forks,
)
from multilane.clock import Clock, SystemClock
from multilane.errors import ClientClosed, MultilaneError, OperationTimeout
from multilane.types import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

    from multilane.config.connection import ConnectionConfig

_POLL_SECONDS: Final = 0.1
# The broker should time out before the client does, so that its reason arrives.
_SHORTEST_TIMEOUT: Final = 0.1


class TopicWrites:
    def __init__(self, config: ConnectionConfig, clock: Clock | None = None) -> None:
        self._config = config
        self._clock = clock or SystemClock()
        self._mask = SecretMask(secrets_of(config))
        self._lock = threading.Lock()
        self._client: AdminClient | None = None
        self._closed = False
        self._last_error: MultilaneError | None = None
        self._is_refused = False
        survive_forks(self)

    @property
    def handle(self) -> object | None:
        return self._client

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._client = None

    def create_topics(
        self, topics: Mapping[str, int], replication_factor: int, configs: Mapping[str, str], timeout: float
    ) -> None:
        from confluent_kafka.cimpl import NewTopic

        wanted = [NewTopic(name, count, replication_factor, config=dict(configs)) for name, count in topics.items()]
        if wanted:
            self._wait(self._started().create_topics(wanted, **_times(timeout)), "CreateTopics of", timeout)

    def delete_topics(self, names: Collection[str], timeout: float) -> None:
        if names:
            self._wait(self._started().delete_topics(list(names), **_times(timeout)), "DeleteTopics of", timeout)

    def create_partitions(self, totals: Mapping[str, int], timeout: float) -> None:
        from confluent_kafka.cimpl import NewPartitions

        wanted = [NewPartitions(name, total) for name, total in totals.items()]
        if wanted:
            self._wait(self._started().create_partitions(wanted, **_times(timeout)), "CreatePartitions of", timeout)

    def alter_topic_config(self, topic: str, changes: Mapping[str, str | None], timeout: float) -> None:
        from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
        from confluent_kafka.admin._resource import ResourceType

        entries = [
            ConfigEntry(
                name,
                value,
                incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
            )
            for name, value in changes.items()
        ]
        if entries:
            resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
            times = {"request_timeout": max(_SHORTEST_TIMEOUT, timeout)}
            futures = self._started().incremental_alter_configs([resource], **times)
            self._wait(dict(zip([topic], futures.values(), strict=True)), "IncrementalAlterConfigs of", timeout)

    def delete_records(self, before: Mapping[TopicPartition, int], timeout: float) -> dict[TopicPartition, int]:
        from confluent_kafka import TopicPartition as KafkaPartition

        if not before:
            return {}
        kafka_partitions = [KafkaPartition(p.topic, p.partition, offset) for p, offset in before.items()]
        futures = self._started().delete_records(kafka_partitions, **_times(timeout))
        named = {TopicPartition(p.topic, p.partition): future for p, future in futures.items()}
        deleted = self._wait(named, "DeleteRecords of", timeout)
        return {partition: int(result.low_watermark) for partition, result in deleted.items()}

    def _started(self) -> AdminClient:
        from confluent_kafka.admin import AdminClient

        with self._lock:
            if self._closed:
                raise ClientClosed("this admin client is closed")
            if self._client is None:
                settings = {**connection_settings(self._config), "error_cb": self._on_error}
                self._client = start_client(AdminClient, settings, self._mask)
            return self._client

    def _on_error(self, error: Any) -> None:
        self._last_error = error_from(error, "the brokers", self._mask)
        self._is_refused = error.code() in (AUTHENTICATION, SSL)

    def _wait(self, futures: Mapping[Any, Future[Any]], doing: str, timeout: float) -> dict[Any, Any]:
        """Poll while waiting: the log and token functions run inside poll. Raises the first error after all futures are
        done."""
        from confluent_kafka import KafkaException

        client = self._started()
        self._last_error, self._is_refused = None, False
        deadline = self._clock.monotonic() + timeout + 1.0
        while not all(f.done() for f in futures.values()):
            if self._clock.monotonic() >= deadline:
                raise OperationTimeout(f"{doing} {', '.join(map(str, futures))}: no response in time{self._cause()}")
            wait(futures.values(), _POLL_SECONDS)
            client.poll(0)
            self._check_login()
        results = {}
        for name, future in futures.items():
            try:
                results[name] = future.result()
            except KafkaException as error:
                raised = raised_error(error, f"{doing} {name}", self._mask)
                late = isinstance(raised, OperationTimeout)
                raise (OperationTimeout(f"{raised}{self._cause()}") if late else raised) from None
        return results

    def _check_login(self) -> None:
        """Raise a wrong password at once instead of after the timeout."""
        if self._last_error is not None and self._is_refused:
            raise self._last_error

    def _cause(self) -> str:
        return "" if self._last_error is None else f"; last error: {self._last_error}"


def _times(timeout: float) -> dict[str, float]:
    seconds = max(_SHORTEST_TIMEOUT, timeout)
    return {"request_timeout": seconds, "operation_timeout": seconds}
