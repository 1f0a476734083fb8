"""A consumer's topic as a Spark DataFrame, by the same configuration.

Thread: application.

For plain Spark: only the consumer's topic and its connection are used, no listener runs, and nothing is committed for
the group unless the options ask for it (`commitGroup`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from multilane.config.app.clients import consumer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.kafka_names import owner
from multilane.spark.options import as_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESET: Final = "auto.offset.reset"
_SET_BY_SOURCE: Final = frozenset({_RESET, "enable.auto.commit"})


def stream_of(
    spark: SparkSession | None,
    group: ConsumerGroupConfig,
    cluster: ClusterConfig,
    model: Any,
    options: Mapping[str, object],
) -> DataFrame:
    """A streaming DataFrame; with a model it has a column `payload` with the model's fields."""
    from pyspark.sql import SparkSession

    from multilane.spark.typed import with_payload

    session = spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    settings = source_settings(group, cluster) | {name: as_option(name, value) for name, value in options.items()}
    frame = session.readStream.format("multilane").options(**settings).load()
    return frame if model is None else with_payload(frame, model)


def source_settings(group: ConsumerGroupConfig, cluster: ClusterConfig) -> dict[str, str]:
    """The options of the source, from the configuration."""
    properties = consumer_properties(group, cluster)
    return kafka_options(properties) | {"subscribe": group.topic, "startingOffsets": str(properties[_RESET])}


def kafka_options(properties: Mapping[str, object]) -> dict[str, str]:
    """Consumer properties as options of the source, without those that the source sets itself."""
    return {
        f"kafka.{name}": as_option(name, value)
        for name, value in properties.items()
        if owner(name) not in _SET_BY_SOURCE
    }
