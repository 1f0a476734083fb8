"""From a consumer's configuration to the options of Spark's source."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from multilane.app.app import App
from multilane.errors import ConfigError
from multilane.spark.offset_spec import EARLIEST, Named
from multilane.spark.options import source_options
from multilane.spark.topic_frames import Times, ranges_of, source_settings

LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "u",
    "sasl.password": "hush",
}


def app_of(folder, properties=None, **consumer) -> App:
    settings = {
        "clusters": {"main": {"clientId": "x", "brokers": ["a:1", "b:2"], "properties": LOGIN}},
        "consumers": {"orders": {"groupId": "g", "name": "shop.orders", "cluster": "main", **consumer}},
    }
    path = folder / "multilane.yaml"
    path.write_text(json.dumps(settings))
    return App(path, properties=properties)


def test_where_it_reads_and_how_it_logs_in(tmp_path):
    app = app_of(tmp_path, offsetInitial="oldest", virtualPartitionCount=4)
    told = source_settings(app.config.consumer("orders"), app.config.cluster("main"))
    made = source_options(told, is_stream=True)
    assert (made.topics.names, made.starting) == (("shop.orders",), Named(EARLIEST))
    assert made.properties["bootstrap.servers"] == "a:1,b:2"
    assert (made.properties["sasl.password"], made.properties["group.id"]) == ("hush", "g")


def test_what_cannot_travel_is_reported(tmp_path):
    app = app_of(tmp_path, {"sasl.oauthbearer.token.provider": lambda: None})  # whatever it is for
    with pytest.raises(ConfigError, match="cannot be sent to Spark's workers"):
        source_settings(app.config.consumer("orders"), app.config.cluster("main"))


def test_the_records_of_a_time():
    assert ranges_of(Times()) == {}
    assert ranges_of(Times(datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC))) == {
        "startingTimestamp": "1767225600000",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": "1767312000000",
    }
    with pytest.raises(ConfigError, match="until=2026-01-02T00:00:00 has no time zone"):
        ranges_of(Times(until=datetime(2026, 1, 2)))
