"""A JVM with Kafka's own consumer, driven from Python through py4j, without compiling Java.

Thread: application.

The gateway listens on the loopback, requires a token, and ends with the process that started it. Every call costs a
round trip of some tenths of a millisecond, which counts against Java; a poll takes about four of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bench.group.systems import Seat, System, properties
from bench.java import JVM_OPTIONS, LOGGING, JavaProgram

_BYTES: Final = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


@dataclass(slots=True)
class Gateway:
    """The running JVM."""

    jvm: Any
    link: Any

    def close(self) -> None:
        self.link.shutdown()


def open_gateway(program: JavaProgram, directory: Path) -> Gateway:
    """Starts the JVM with the options of Kafka's own scripts."""
    from py4j.java_gateway import GatewayParameters, JavaGateway, find_jar_path, launch_gateway  # type: ignore[import-untyped]

    logging = directory / "log4j2.properties"
    logging.write_text(LOGGING)
    port, token = launch_gateway(
        java_path=str(program.program),
        jarpath=find_jar_path(),
        classpath=program.classpath,
        javaopts=[*JVM_OPTIONS, f"-Dlog4j2.configurationFile={logging}"],
        die_on_exit=True,
        enable_auth=True,
    )
    link = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token, auto_convert=True))
    return Gateway(link.jvm, link)


class JavaMember:
    def __init__(self, gateway: Gateway, system: System, seat: Seat) -> None:
        jvm = gateway.jvm
        given = jvm.java.util.Properties()
        for name, value in properties(system, seat).items():
            given.setProperty(name, value)
        given.setProperty("key.deserializer", _BYTES)
        given.setProperty("value.deserializer", _BYTES)
        self._topics = jvm.java.util.List.of(seat.topic)
        self._duration = jvm.java.time.Duration
        self._wait = (0.0, self._duration.ofMillis(0))
        self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(given)

    def subscribe(self) -> None:
        self._consumer.subscribe(self._topics)

    def poll(self, seconds: float) -> frozenset[int]:
        if self._wait[0] != seconds:
            self._wait = (seconds, self._duration.ofMillis(int(seconds * 1_000)))
        records = self._consumer.poll(self._wait[1])
        return frozenset() if records.isEmpty() else partitions_in(records.partitions().toString())

    def holds(self) -> int:
        return int(self._consumer.assignment().size())

    def close(self) -> None:
        self._consumer.close()


def partitions_in(text: str) -> frozenset[int]:
    """The numbers in `[topic-0, topic-2]`, Java's text of a set of partitions."""
    return frozenset(int(item.rpartition("-")[2]) for item in text.strip("[]").split(", ") if item)
