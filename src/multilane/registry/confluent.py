"""Asks a registry by Confluent's HTTP API, with confluent-kafka's own client.

Thread: any; one request at a time (its owner locks).

Confluent's Schema Registry speaks it, and so do Apicurio (under /apis/ccompat/v7), Karapace and Redpanda. Retries are
off: who asks decides when to ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

from multilane.config.app.registry import SchemaRegistryConfig
from multilane.errors import ConfigError, MultilaneError
from multilane.registry.answers import (
    AVRO,
    MOST_REFERENCES,
    WriterSchema,
    refused,
    too_many_references,
    unknown,
    unreachable,
    unreadable,
)
from multilane.registry.framing import SchemaId

_UNKNOWN: Final = (40401, 40402, 40403)  # subject, version, schema: the registry's own codes, not any page's 404


class ConfluentApi:
    def __init__(self, config: SchemaRegistryConfig) -> None:
        """Connects to nobody."""
        try:
            from confluent_kafka.schema_registry import SchemaRegistryClient
            from confluent_kafka.schema_registry.error import SchemaRegistryError
        except ImportError:
            raise ConfigError(
                "a schema registry needs confluent-kafka's client, here and in workers: "
                'pip install "multilane[registry]"'
            ) from None
        self._url = config.url
        self._refusal = SchemaRegistryError
        self._client: Callable[[], Any] = partial(SchemaRegistryClient, _settings(config))
        try:
            with self._client():
                pass
        except (OSError, ValueError) as error:  # certificates
            raise ConfigError(f"schemaRegistry: its certificates cannot be used: {error}") from None

    def schema(self, wanted: SchemaId) -> WriterSchema:
        with self._client() as client:  # it is seldom needed: no connection is kept
            found = self._asked(wanted, lambda: client.get_schema(wanted.number))
            return self._whole(client, f"schema {wanted}", found)

    def latest(self, subject: str) -> WriterSchema:
        with self._client() as client:
            found = self._asked(f"subject {subject}", lambda: client.get_latest_version(subject))
            name = f"schema id {found.schema_id} ({subject}, version {found.version})"
            return self._whole(client, name, found.schema)

    def _whole(self, client: Any, name: str, schema: Any) -> WriterSchema:
        if not isinstance(schema.schema_str, str):
            raise unreadable(self._url, name)
        references = dict(self._references(client, name, schema, set()))
        return WriterSchema(name, schema.schema_type or AVRO, schema.schema_str, tuple(references.items()))

    def _references(self, client: Any, name: str, schema: Any, seen: set[object]) -> Iterator[tuple[str, str]]:
        for reference in schema.references or ():
            place = (reference.subject, reference.version)
            if place in seen:
                continue
            seen.add(place)
            if len(seen) > MOST_REFERENCES:
                raise too_many_references(self._url, name)
            what = f"subject {reference.subject}, version {reference.version}"
            found = self._asked(what, partial(client.get_version, *place)).schema
            yield from self._references(client, name, found, seen)
            yield reference.name, found.schema_str

    def _asked(self, what: object, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except self._refusal as error:
            if error.error_code in _UNKNOWN:
                raise unknown(self._url, what) from None
            raise refused(self._url, what, error.http_status_code, error.error_message) from None
        except MultilaneError:
            raise
        except Exception as error:  # noqa: BLE001 - of the HTTP library, TLS, or of an answer that is no JSON
            if isinstance(error, ValueError | TypeError | KeyError | AttributeError):
                raise unreadable(self._url, what) from None
            raise unreachable(self._url, what, error) from None


def _settings(config: SchemaRegistryConfig) -> dict[str, object]:
    made: dict[str, object] = {"url": config.url, "timeout": config.timeout, "max.retries": 0}
    if config.username is not None and config.password is not None:
        made["basic.auth.user.info"] = f"{config.username}:{config.password.reveal()}"
    if config.token is not None:
        made |= {
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": config.token.reveal(),
            "bearer.auth.logical.cluster": "",  # a header of Confluent's cloud, which the client wants to be set
        }
    files = {
        "ssl.ca.location": config.ca_file,
        "ssl.certificate.location": config.certificate_file,
        "ssl.key.location": config.key_file,
    }
    return made | {name: path for name, path in files.items() if path is not None}
