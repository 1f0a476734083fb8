"""A schema registry as Spark's workers get it: with the names of secrets instead of the secrets.

Thread: any (values; the cache has a lock of Python's).

A plan is shown by Spark, logged and stored in checkpoints. So a login travels as `${NAME}`, as the configuration has
it, and each worker fills it from its own environment. Owns one registry client for each plan and process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from multilane.config.app.cluster import ClusterConfig
from multilane.config.app.files.environment import interpolate
from multilane.config.app.files.source_location import Problems, SourceLocation
from multilane.config.app.files.tree import Scalar
from multilane.config.app.registry import SchemaRegistryConfig
from multilane.errors import ConfigError
from multilane.registry.formats import PayloadFormat
from multilane.registry.schema_registry import SchemaRegistry
from multilane.secret import Secret

_NAME_ALONE: Final = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}", re.ASCII)  # a default would be shown


@dataclass(frozen=True, slots=True)
class RegistryPlan:
    """The settings as (name, text); those in `secrets` are texts such as ${NAME}."""

    settings: tuple[tuple[str, Any], ...]
    secrets: tuple[tuple[str, str], ...] = ()


def registry_plan(payload_format: PayloadFormat, cluster: ClusterConfig | None) -> RegistryPlan | None:
    """None if the format needs no registry. Raises ConfigError if there is none, or if a secret would be shown."""
    if not payload_format.needs_registry:
        return None
    config = None if cluster is None else cluster.schema_registry
    if config is None:
        name = type(payload_format).__name__
        raise ConfigError(f"{name} needs a schema registry: add schemaRegistry to the consumer's cluster")
    settings, secrets = [], []
    for name in config.model_fields_set:
        value = getattr(config, name)
        if not isinstance(value, Secret):
            settings.append((name, value))
        elif value.source is not None and _NAME_ALONE.fullmatch(value.source):
            secrets.append((name, value.source))
        else:
            raise ConfigError(
                f"schemaRegistry.{name} would be shown in Spark's plans: write ${{NAME}} in the configuration, and set "
                "the variable for Spark's workers too"
            )
    return RegistryPlan(tuple(sorted(settings)), tuple(sorted(secrets)))


@lru_cache(16)
def registry_of(plan: RegistryPlan) -> SchemaRegistry:
    """The registry, in the process that asks it."""
    return SchemaRegistry(filled(plan, os.environ))


def filled(plan: RegistryPlan, environment: Mapping[str, str]) -> SchemaRegistryConfig:
    values = dict(plan.settings)
    for name, source in plan.secrets:
        problems = Problems()
        found = interpolate(Scalar(source, SourceLocation("schemaRegistry")), environment, problems)
        if problems.found or not isinstance(found, Scalar):
            raise ConfigError(
                f"schemaRegistry.{name} is {source}, and the environment of this Spark worker has no such variable: "
                "set it with spark.executorEnv, or as your cluster gives secrets to executors"
            )
        values[name] = Secret(found.text, source)
    return SchemaRegistryConfig(**values)
