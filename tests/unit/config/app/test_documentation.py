"""docs/configuration.md names every key with its default, and its example is a configuration."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from multilane.config.app import (
    Auth,
    ClusterConfig,
    ConsumerGroupConfig,
    ErrorBreaker,
    ErrorConfig,
    ProducerDefaults,
    ProducerTopicConfig,
    RetryBackoff,
    ShovelConfig,
)
from multilane.config.app.consumer import DetachAfter, ResultsConfig
from multilane.config.app.registry import SchemaRegistryConfig
from multilane.config.app.shape import keys_of, kind_of
from multilane.config.app.units import format_duration, format_size

PAGE = (Path(__file__).parents[4] / "docs" / "configuration.md").read_text()
TABLES = {
    "Clusters": [
        ("", ClusterConfig), ("auth.", Auth), ("errorConfig.", ErrorConfig), ("producerConfig.", ProducerDefaults),
        ("schemaRegistry.", SchemaRegistryConfig),
    ],
    "Consumers": [
        ("", ConsumerGroupConfig), ("detachAfter.", DetachAfter), ("retryBackoff.", RetryBackoff),
        ("errorBreaker.", ErrorBreaker), ("results.", ResultsConfig),
    ],
    "Error consumers": [("", ShovelConfig)],
    "Producers": [("", ProducerTopicConfig)],
}  # fmt: skip


def default_of(info):
    kind, value = kind_of(info), info.default
    if info.is_required():
        return "required"
    if info.default_factory is not None:
        return (info.description or "").partition(" Default: ")[2].removesuffix(".") or "none"
    if value is None or value == ():
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    form = {"duration": format_duration, "size": format_size}.get(kind.form if kind else "", lambda v: f"{v}")
    return f"`{form(value)}`".replace(".0`", "`")


@pytest.mark.parametrize("heading", TABLES)
def test_every_key_is_documented_with_its_default(heading):
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section is not None
    rows = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| ([^|]+) \|$", section[1], re.MULTILINE)
    documented = {key: (default, meaning) for key, default, _, meaning in rows}
    known = {
        prefix + key: (
            default_of(info := model.model_fields[name]),
            (info.description or "").partition(" Default: ")[0],
        )
        for prefix, model in TABLES[heading]
        for key, name in keys_of(model).items()
    }
    assert documented == known


def test_the_example_is_a_configuration(loaded):
    example = re.search(r"```yaml\n(clusters:.*?)```", PAGE, re.DOTALL)
    assert example is not None
    config = loaded(example[1], profile="stage", env={"KAFKA_PASSWORD": "p"}).config
    assert config.consumer("orders").lanes == 4
    assert config.cluster("main").brokers == ("stage:9092",)
