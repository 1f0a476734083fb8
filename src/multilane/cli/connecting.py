"""Instructions for connecting to the development Kafka.

Thread: none (pure, except for the random password).
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from multilane.secret import Secret

if TYPE_CHECKING:
    from multilane.dev.kafka import KafkaCluster

_MODULES: Final = {
    "scram": ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    "plain": ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
}


@dataclass(frozen=True, slots=True)
class DevLogin:
    """The one user of a development cluster."""

    kind: str
    user: str
    password: Secret


def new_login(kind: str) -> DevLogin:
    """A user whose password lives as long as the cluster's process."""
    return DevLogin(kind, "dev", Secret(secrets.token_urlsafe(12)))


def instructions(cluster: KafkaCluster, listeners: Sequence[str], login: DevLogin | None) -> list[str]:
    """Client properties for each listener, ready to copy into a file."""
    nodes = "1 node" if cluster.nodes == 1 else f"{cluster.nodes} nodes"
    lines = [f"Kafka is ready: {nodes}, data in {cluster.directory}"]
    for name in listeners:
        lines += ["", f"# {name}", f"bootstrap.servers={cluster.bootstrap(name)}"]
        lines += [f"{key}={value}" for key, value in client_properties(cluster, name, login).items()]
    return [*lines, "", "Ctrl-C stops it."]


def client_properties(cluster: KafkaCluster, name: str, login: DevLogin | None) -> dict[str, str]:
    """The properties that a client needs besides the addresses, by their Java names."""
    if name == "PLAINTEXT":
        return {}
    made = {"security.protocol": "SSL" if name == "MTLS" else name}
    if "SSL" in name or name == "MTLS":
        made |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(cluster.certificates.ca)}
    if name == "MTLS":
        made |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(cluster.certificates.client.keystore)}
    if name.startswith("SASL") and login is not None:
        mechanism, module = _MODULES[login.kind]
        # The only place that shows the password: a person has to type it, and it opens a loopback port of a throw-away
        # cluster.
        quoted = f'username="{login.user}" password="{login.password.reveal()}"'
        made |= {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} required {quoted};"}
    return made
