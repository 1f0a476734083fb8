"""Queries brokers for readiness and adds SCRAM users, through confluent-kafka.

Thread: any.

A node is ready when it answers a Metadata request on its own port and returns the expected nodes. A SCRAM user is ready
when it can log in to every node, because brokers load users one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from multilane.dev.settings import SCRAM
from multilane.errors import DevKafkaError
from multilane.secret import Secret

_ADMIN_SECONDS: Final = 20.0
_ITERATIONS: Final = 4096
_SILENT: Final = logging.getLogger("multilane.dev.readiness.client")
_SILENT.addHandler(logging.NullHandler())
_SILENT.propagate = False


def answers(address: str, timeout: float, security: Mapping[str, str] | None = None) -> set[int]:
    """The node ids that the broker at `address` returns; none if it does not answer in time."""
    from confluent_kafka import KafkaException  # heavy; loaded when a cluster starts
    from confluent_kafka.admin import AdminClient

    # Refused connections are expected here: no log lines, and quick reconnects.
    quiet = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 100}
    client = AdminClient({"bootstrap.servers": address, **quiet, **(security or {})}, logger=_SILENT)
    try:
        return set(client.list_topics(timeout=timeout).brokers)
    except KafkaException:
        return set()


def scram_login(user: str, secret: Secret, ca: Path | None) -> dict[str, str]:
    """Client properties for the mechanism that `add_scram_users` adds last."""
    tls = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(ca)}
    transport = {"security.protocol": "SASL_PLAINTEXT"} if ca is None else tls
    return {**transport, "sasl.mechanism": SCRAM[-1], "sasl.username": user, "sasl.password": secret.reveal()}


def add_scram_users(bootstrap: str, users: Mapping[str, Secret]) -> None:
    """Creates or updates each user for both SCRAM mechanisms, in the given order."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.admin._scram import (  # where the package's types say they are
        ScramCredentialInfo,
        ScramMechanism,
        UserScramCredentialAlteration,
        UserScramCredentialUpsertion,
    )

    client = AdminClient({"bootstrap.servers": bootstrap}, logger=_SILENT)
    # A request may name a user only once, hence one request per user and mechanism.
    for name, secret in users.items():
        for mechanism in SCRAM:
            credential = ScramCredentialInfo(getattr(ScramMechanism, mechanism.replace("-", "_")), _ITERATIONS)
            alterations: list[UserScramCredentialAlteration] = [
                UserScramCredentialUpsertion(name, credential, secret.reveal().encode())
            ]
            try:
                client.alter_user_scram_credentials(alterations, request_timeout=_ADMIN_SECONDS)[name].result(
                    _ADMIN_SECONDS
                )
            except KafkaException as error:
                raise DevKafkaError(f"cannot add the SCRAM user {name!r}: {error.args[0]}") from error
