"""A consumer's topic as a Spark DataFrame, by the same configuration.

Thread: application.

For plain Spark: only the consumer's topic and its connection are used, no listener runs, and nothing is committed for
the group unless the options ask for it (`commitGroup`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from multilane.config.app.clients import consumer_properties
from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.kafka_names import owner
from multilane.config.app.model import AppConfig
from multilane.errors import ConfigError
from multilane.spark.options import as_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_RESET: Final = "auto.offset.reset"
_SINCE: Final = "startingTimestamp"
_UNTIL: Final = "endingTimestamp"
_SET_BY_SOURCE: Final = frozenset({_RESET, "enable.auto.commit"})


def stream_of(
    spark: SparkSession | None, config: AppConfig, name: str, model: Any, options: Mapping[str, object]
) -> DataFrame:
    """A streaming DataFrame. With a model it has a column `payload` with the model's fields, and `payload_error`."""
    group = config.consumer(name)
    cluster = config.cluster(group.cluster)
    settings = source_settings(group, cluster) | _as_options(options)
    return _typed(_session(spark).readStream.format("multilane").options(**settings).load(), group, cluster, model)


@dataclass(frozen=True, slots=True)
class Times:
    """From `since` up to but not including `until`; None: from the beginning, to the end."""

    since: datetime | None = None
    until: datetime | None = None


def table_of(config: AppConfig, name: str, model: Any, times: Times, options: Mapping[str, Any]) -> DataFrame:
    """The records that the topic has now, as a DataFrame of the same columns. `spark`, among the options, is the
    session."""
    group = config.consumer(name)
    cluster, spark = config.cluster(group.cluster), options.get("spark")
    named = {option: value for option, value in options.items() if option != "spark"}
    settings = source_settings(group, cluster) | {"startingOffsets": "earliest"} | ranges_of(times)
    frame = _session(spark).read.format("multilane").options(**settings | _as_options(named)).load()
    return _typed(frame, group, cluster, model)


def _as_options(options: Mapping[str, object]) -> dict[str, str]:
    return {name: as_option(name, value) for name, value in options.items()}


def _session(spark: SparkSession | None) -> SparkSession:
    from pyspark.sql import SparkSession

    return spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()


def _typed(frame: DataFrame, group: ConsumerGroupConfig, cluster: ClusterConfig, model: Any) -> DataFrame:
    if model is None:
        return frame
    from multilane.spark.typed import with_payload

    return with_payload(frame, model, cluster, group.topic)


def ranges_of(times: Times) -> dict[str, str]:
    """As options of the source."""
    options = {}
    for name, option, at in (("since", _SINCE, times.since), ("until", _UNTIL, times.until)):
        if at is not None:
            if at.tzinfo is None:
                raise ConfigError(
                    f"{name}={at.isoformat()} has no time zone: give one, as in datetime(..., tzinfo=UTC)"
                )
            options[option] = str(round(at.timestamp() * 1_000))
    if times.since is not None:
        options["startingOffsetsByTimestampStrategy"] = "latest"  # no such record is an empty table
    return options


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
