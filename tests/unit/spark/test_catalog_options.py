"""The options of a table in Spark's catalog: found among its properties, and kept in its schema."""

from __future__ import annotations

import pytest

from multilane.errors import ConfigError
from multilane.spark.catalog_options import options_in, table_options, with_stored
from multilane.spark.rows import spark_schema
from multilane.spark.source import KafkaSource

# What Spark 4.3 shows when a table is created.
SHOWN = {
    "includeheaders": "true",
    "provider": "multilane",
    "own": "one",
    "comment": "orders",
    "owner": "root",
    "kafka.bootstrap.servers": "localhost:9092",
    "subscribe": "orders",
    "option.kafka.bootstrap.servers": "localhost:9092",
    "option.subscribe": "orders",
    "option.includeheaders": "true",
}
GIVEN = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders", "includeheaders": "true"}


def test_a_table_keeps_its_options():
    assert table_options(SHOWN) == GIVEN
    assert table_options(GIVEN) is None
    schema = KafkaSource(SHOWN).schema()
    assert schema == with_stored(spark_schema(include_headers=True), GIVEN)
    assert options_in(schema) == GIVEN
    assert options_in(spark_schema(include_headers=True)) == {}


def test_a_query_reads_with_what_the_table_keeps_and_its_own_options():
    schema = KafkaSource(SHOWN).schema()
    reader = KafkaSource({"maxtasks": "3"}).reader(schema)
    assert (reader.options.topics.names, reader.options.max_tasks) == (("orders",), 3)


def test_a_table_keeps_no_secrets():
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.password: .*TEMPORARY VIEW") as raised:
        KafkaSource(SHOWN | {"option.kafka.sasl.password": "hush"}).schema()
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize("name", ["kafka.ssl.keystore.key", "kafka.ssl_keystore_key", "kafka.ssl.key-pem"])
def test_a_table_keeps_no_private_key_in_any_spelling(name):
    with pytest.raises(ConfigError, match="private key") as raised:
        KafkaSource(SHOWN | {f"option.{name}": "hush"}).schema()
    assert "hush" not in str(raised.value)
