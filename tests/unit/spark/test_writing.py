"""What `multilane.spark.write` refuses before Spark hears of it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import multilane.spark
from multilane.errors import ConfigError


def test_a_stream_is_written_in_another_way():
    with pytest.raises(ConfigError, match="writeStream"):
        multilane.spark.write(SimpleNamespace(isStreaming=True), {"bootstrap.servers": "localhost:9092"})


def test_functions_do_not_travel():
    properties = {"bootstrap.servers": "localhost:9092", "sasl.oauthbearer.token.provider": lambda: "token"}
    with pytest.raises(ConfigError, match=r"sasl\.oauthbearer\.token\.provider"):
        multilane.spark.write(SimpleNamespace(isStreaming=False), properties)


class Rows:
    """A DataFrame that notes what it is written with."""

    isStreaming = False

    def __init__(self):
        self.options_given: dict[str, str] = {}

    @property
    def write(self):
        return self

    def format(self, name):
        return self

    def options(self, **options):
        self.options_given = options
        return self

    def mode(self, name):
        return self

    def save(self): ...


@pytest.mark.parametrize(
    "name", ["bootstrap.servers", "kafka.bootstrap.servers", "bootstrap_servers", "bootstrapServers"]
)
def test_properties_in_any_spelling_as_everywhere(name):
    rows = Rows()
    multilane.spark.write(rows, {name: ["one:9092", "two:9092"], "client.id": None, "linger.ms": 5}, topic="orders")
    assert rows.options_given == {
        "kafka.bootstrap.servers": "one:9092,two:9092",
        "kafka.linger.ms": "5",
        "topic": "orders",
    }
