"""Chooses how the payloads of a format become columns, with the registry of the consumer's cluster.

Thread: application. Asks the registry for the newest Avro schema of a topic, where the user gives none.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column

from multilane.config.app.cluster import ClusterConfig
from multilane.errors import ConfigError
from multilane.registry.answers import AVRO
from multilane.registry.formats import Avro, Protobuf
from multilane.registry.schema_registry import SchemaRegistry
from multilane.spark import decoding
from multilane.spark.avro.decoding import decoding as avro_decoding
from multilane.spark.protobuf_decoding import decoding as protobuf_decoding
from multilane.spark.registry_plan import registry_plan


def payload_decoding(model: Avro | Protobuf, cluster: ClusterConfig | None, topic: str) -> Callable[..., Column]:
    """A Spark UDF from (value, topic, partition, offset) to (payload, error)."""
    plan = registry_plan(model, cluster)
    asked = None if plan is None else decoding.AskedRegistry(plan, decoding.PATIENCE)
    if isinstance(model, Protobuf):
        if asked is None:
            raise ConfigError("Protobuf needs a schema registry: add schemaRegistry to the consumer's cluster")
        return protobuf_decoding(model, asked)
    return avro_decoding(model, asked, _newest(model, cluster, topic))


def _newest(avro: Avro, cluster: ClusterConfig | None, topic: str) -> str | None:
    """The reader's schema where the user gives none: the newest of the topic, as producers name it by default."""
    if avro.schema is not None or cluster is None or cluster.schema_registry is None:
        return None
    subject = f"{topic}-value"
    found = SchemaRegistry(cluster.schema_registry).latest(subject)
    if found.kind != AVRO or found.references:
        what = "refers to other schemas" if found.references else f"is {found.kind}"
        raise ConfigError(
            f"{found.name} {what}: give the reader's schema, as in Avro('order.avsc', framing='registry')"
        )
    return found.text
