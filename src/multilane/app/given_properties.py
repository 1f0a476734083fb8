"""Kafka properties that are given in code, for every client of an application.

Thread: any (values).
"""

from __future__ import annotations

from collections.abc import Mapping

from multilane.config.app.kafka_names import fault, given_properties, owner
from multilane.config.app.model import AppConfig
from multilane.errors import ConfigError, ConfigProblems


def with_properties(config: AppConfig, properties: Mapping[str, object]) -> AppConfig:
    """Add these properties to every cluster. A cluster's own properties win."""
    if not properties:
        return config
    given = given_properties(properties)
    problems = [problem for key, value in given.items() if (problem := fault(key, value))]
    if problems:
        raise ConfigProblems(problems)
    if any(owner(key) == "bootstrap.servers" for key in given):
        raise ConfigError("properties: leave out bootstrap.servers; it comes from the `brokers` of each cluster")
    clusters = {
        name: cluster.model_copy(update={"properties": {**given, **cluster.properties}})
        for name, cluster in config.clusters.items()
    }
    return config.model_copy(update={"clusters": clusters})
