"""A broker's configuration, from the cluster's settings.

Thread: none (pure).

Owns the listeners' names and protocols and the timers of the `test` profile. The user's properties always win.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from multilane.errors import DevKafkaError
from multilane.secret import Secret

CONTROLLER: Final = "CONTROLLER"
PLAINTEXT: Final = "PLAINTEXT"
PROTOCOLS: Final = (PLAINTEXT, "SSL", "SASL_PLAINTEXT", "SASL_SSL")
SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS: Final = ("PLAIN", *SCRAM, "OAUTHBEARER")
_MODULES: Final = "org.apache.kafka.common.security"

# Little memory, quick elections, no delay for groups: short waits for tests and developers.
_TEST: Final = {
    "auto.create.topics.enable": "false",
    "background.threads": "2",
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "3000",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "log.initial.task.delay.ms": "500",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
PROFILES: Final[Mapping[str, Mapping[str, str]]] = {"test": _TEST, "stock": {}}


@dataclass(frozen=True, slots=True)
class KafkaListener:
    """One address of each broker. `keystore` replaces the cluster's own server certificate (PEM, key and chain)."""

    name: str
    protocol: str
    client_auth: bool = False
    keystore: Path | None = None

    @property
    def tls(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.protocol.startswith("SASL")


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """The files of every TLS listener."""

    keystore: Path
    truststore: Path


@dataclass(frozen=True, slots=True)
class BrokerSpec:
    """The input of one broker's configuration. Ports are per node: listener name -> port."""

    node_id: int
    data: Path
    listeners: Sequence[KafkaListener]
    ports: Mapping[int, Mapping[str, int]]
    users: Mapping[str, Secret]
    tls: TlsFiles | None


def listener(wanted: str | KafkaListener) -> KafkaListener:
    """A listener by protocol name; `MTLS` is SSL that requires a client certificate."""
    if isinstance(wanted, KafkaListener):
        return wanted
    if wanted == "MTLS":
        return KafkaListener("MTLS", "SSL", client_auth=True)
    if wanted not in PROTOCOLS:
        raise DevKafkaError(f"unknown listener {wanted!r}: choose one of {', '.join((*PROTOCOLS, 'MTLS'))}")
    return KafkaListener(wanted, wanted)


def listeners_of(wanted: Sequence[str | KafkaListener]) -> tuple[KafkaListener, ...]:
    """The listeners with PLAINTEXT first: brokers, the cluster's setup and the Java tools use it."""
    named = {PLAINTEXT: KafkaListener(PLAINTEXT, PLAINTEXT)}
    for item in map(listener, wanted):
        if item.name in named and named[item.name] != item:
            raise DevKafkaError(f"two listeners have the name {item.name}")
        named[item.name] = item
    return tuple(named.values())


def broker_properties(spec: BrokerSpec, profile: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The whole server.properties of one broker."""
    if profile not in PROFILES:
        raise DevKafkaError(f"unknown profile {profile!r}: choose one of {', '.join(PROFILES)}")
    result = _addresses(spec) | _replication(len(spec.ports)) | dict(PROFILES[profile])
    for item in spec.listeners:
        prefix = f"listener.name.{item.name.lower()}"
        result |= _tls(prefix, item, spec.tls) if item.tls else {}
        result |= _sasl(prefix, spec.users) if item.sasl else {}
    return result | dict(properties)


def render(properties: Mapping[str, str]) -> str:
    """The properties in Java's format: backslashes are doubled, newlines escaped."""
    lines = []
    for key, value in properties.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n")
        lines.append(f"{key}={escaped}\n")
    return "".join(lines)


def _addresses(spec: BrokerSpec) -> dict[str, str]:
    own = spec.ports[spec.node_id]
    protocols = {item.name: item.protocol for item in spec.listeners} | {CONTROLLER: PLAINTEXT}
    voters = (f"{node}@127.0.0.1:{ports[CONTROLLER]}" for node, ports in spec.ports.items())
    return {
        "process.roles": "broker,controller",
        "node.id": str(spec.node_id),
        "broker.rack": f"rack-{spec.node_id}",
        "log.dirs": str(spec.data),
        "controller.quorum.voters": ",".join(voters),
        "controller.listener.names": CONTROLLER,
        "inter.broker.listener.name": PLAINTEXT,
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in own.items()),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in protocols.items()),
    }


def _replication(nodes: int) -> dict[str, str]:
    factor, in_sync = str(min(nodes, 3)), str(min(nodes, 2))
    return {
        "default.replication.factor": factor,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": factor,
        "share.coordinator.state.topic.min.isr": in_sync,
    }


def _tls(prefix: str, item: KafkaListener, files: TlsFiles | None) -> dict[str, str]:
    if files is None:
        raise DevKafkaError(f"listener {item.name} needs certificates")
    return {
        f"{prefix}.ssl.keystore.type": "PEM",
        f"{prefix}.ssl.keystore.location": str(item.keystore or files.keystore),
        f"{prefix}.ssl.truststore.type": "PEM",
        f"{prefix}.ssl.truststore.location": str(files.truststore),
        f"{prefix}.ssl.client.auth": "required" if item.client_auth else "none",
    }


def _sasl(prefix: str, users: Mapping[str, Secret]) -> dict[str, str]:
    plain = " ".join(f"user_{name}={_quoted(secret.reveal())}" for name, secret in users.items())
    result = {
        f"{prefix}.sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        f"{prefix}.plain.sasl.jaas.config": f"{_MODULES}.plain.PlainLoginModule required {plain};",
        # Without a configured validator Kafka accepts unsigned tokens: for development only, as here.
        f"{prefix}.oauthbearer.sasl.jaas.config": (
            f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
        ),
    }
    for mechanism in SCRAM:
        result[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = f"{_MODULES}.scram.ScramLoginModule required;"
    return result


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
