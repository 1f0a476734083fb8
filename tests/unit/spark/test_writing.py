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
