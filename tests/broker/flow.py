"""A stream of records that goes on while brokers fail, and what became of each of them."""

from __future__ import annotations

import threading
from types import TracebackType

from confluent_kafka import Message, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from broker.produce import new_producer
from multilane.dev.kafka import KafkaCluster

_PAUSE_SECONDS = 0.005
_FLUSH_SECONDS = 60


class Flow:
    """Writes numbered records to every partition in turn until told to end; knows which ones the brokers have.

    Idempotent and acks=all: what was acknowledged is in the log, in order. Nearly always once: when all brokers were
    gone, librdkafka may begin a new producer epoch and send what it has no answer for once more, with the sequence
    numbers from zero again, and no broker can tell then that it has the record already.
    """

    def __init__(self, kafka: KafkaCluster, topic: str, partitions: int) -> None:
        self.acknowledged: dict[int, list[bytes]] = {p: [] for p in range(partitions)}
        self.refused: list[object] = []
        self._topic = topic
        self._admin = AdminClient({"bootstrap.servers": kafka.bootstrap(), "log_level": 0})
        self._producer = new_producer(
            kafka.bootstrap(),
            enable_idempotence=True,
            socket_timeout_ms=3_000,
            reconnect_backoff_max_ms=500,
            message_timeout_ms=60_000,
        )
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Flow:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> dict[int, int]:
        """Stops writing and waits until every record's fate is known; where the logs end."""
        self._end.set()
        self._thread.join()
        assert self._producer.flush(_FLUSH_SECONDS) == 0
        assert not self.refused, self.refused[0]
        ends = {TopicPartition(self._topic, partition): OffsetSpec.latest() for partition in self.acknowledged}
        told = self._admin.list_offsets(ends)
        return {place.partition: future.result(_FLUSH_SECONDS).offset for place, future in told.items()}

    def _run(self) -> None:
        number = 0
        while not self._end.wait(_PAUSE_SECONDS):
            for partition in self.acknowledged:
                self._producer.produce(self._topic, b"%d" % number, partition=partition, on_delivery=self._delivered)
                number += 1
            self._producer.poll(0)

    def _delivered(self, error: object, message: Message) -> None:
        if error is None:
            self.acknowledged[message.partition()].append(message.value())
        else:
            self.refused.append(error)
