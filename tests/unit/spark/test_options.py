"""The options of the format: Spark's names, and what is wrong with them."""

from __future__ import annotations

import pytest

from multilane.errors import ConfigError
from multilane.spark.offset_spec import EARLIEST, GROUP, LATEST, AtTime, Exact, Named
from multilane.spark.options import TopicSelection, includes_headers, sink_options, source_options
from multilane.types import TopicPartition

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}
ORDERS = BROKERS | {"subscribe": "orders"}


def test_what_is_not_said():
    stream, batch = source_options(ORDERS, is_stream=True), source_options(ORDERS, is_stream=False)
    assert (stream.starting, batch.starting, batch.ending) == (Named(LATEST), Named(EARLIEST), Named(LATEST))
    assert (stream.max_offsets, stream.min_partitions, stream.max_tasks, stream.commit_group) == (None,) * 4
    assert (stream.fail_on_data_loss, stream.include_headers, stream.poll_seconds) == (True, False, 120.0)


def test_everything_in_any_case():
    said = {
        "KAFKA.bootstrap.servers": "localhost:9092",
        "kafka.isolation.level": "read_committed",
        "SUBSCRIBE": "orders, bills",
        "maxoffsetspertrigger": "5000",
        "minPartitions": "7",
        "maxTasks": "3",
        "failOnDataLoss": "False",
        "includeHeaders": "TRUE",
        "kafkaConsumer.pollTimeoutMs": "500",
        "commitGroup": "g",
        "checkpointLocation": "/somewhere",
    }
    made = source_options(said, is_stream=True)
    assert made.topics == TopicSelection(names=("orders", "bills"))
    assert dict(made.properties) == {"bootstrap.servers": "localhost:9092", "isolation.level": "read_committed"}
    assert (made.max_offsets, made.min_partitions, made.max_tasks, made.commit_group) == (5000, 7, 3, "g")
    assert (made.fail_on_data_loss, made.include_headers, made.poll_seconds) == (False, True, 0.5)
    assert includes_headers(said)


@pytest.mark.parametrize(
    ("said", "topics"),
    [
        ({"subscribePattern": "orders\\..*"}, TopicSelection(pattern="orders\\..*")),
        ({"assign": '{"a": [0, 2]}'}, TopicSelection(assigned=(TopicPartition("a", 0), TopicPartition("a", 2)))),
    ],
)
def test_other_ways_to_say_what_is_read(said, topics):
    assert source_options(BROKERS | said, is_stream=True).topics == topics


@pytest.mark.parametrize(
    ("said", "starting"),
    [
        ({"startingOffsets": "earliest"}, Named(EARLIEST)),
        ({"startingOffsets": "group", "kafka.group.id": "g"}, Named(GROUP)),
        ({"startingOffsets": '{"orders": {"0": 5}}'}, Exact({TopicPartition("orders", 0): 5})),
        ({"startingTimestamp": "5", "startingOffsets": "earliest"}, AtTime(5)),
        ({"startingTimestamp": "5", "startingOffsetsByTimestampStrategy": "latest"}, AtTime(5, is_strict=False)),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 5}}'}, AtTime({TopicPartition("orders", 0): 5})),
    ],
)
def test_beginnings(said, starting):
    assert source_options(ORDERS | said, is_stream=True).starting == starting


@pytest.mark.parametrize(
    ("said", "ending"),
    [
        ({"endingOffsets": '{"orders": {"0": 5}}'}, Exact({TopicPartition("orders", 0): 5})),
        ({"endingTimestamp": "5"}, AtTime(5, is_strict=False)),
        ({"endingOffsetsByTimestamp": '{"orders": {"0": 5}}'}, AtTime({TopicPartition("orders", 0): 5}, False)),
    ],
)
def test_ends(said, ending):
    assert source_options(ORDERS | said, is_stream=False).ending == ending


@pytest.mark.parametrize(
    ("said", "is_stream", "why"),
    [
        ({"subscribe": "orders"}, True, "kafka.bootstrap.servers is missing"),
        (BROKERS, True, "exactly one of subscribe, subscribePattern and assign; given: none"),
        (ORDERS | {"assign": '{"a": [0]}'}, True, "given: subscribe and assign"),
        (BROKERS | {"subscribe": " , "}, True, "give topic names"),
        (BROKERS | {"subscribePattern": "("}, True, "is not a regular expression"),
        (BROKERS | {"assign": '{"a": 0}'}, True, 'give JSON such as {"orders"'),
        (BROKERS | {"assign": '{"a": [-1]}'}, True, 'give JSON such as {"orders"'),
        (ORDERS | {"startingOffset": "latest"}, True, "'startingOffset'; did you mean startingOffsets"),
        (ORDERS | {"isolation.level": "x"}, True, "did you mean kafka.isolation.level"),
        (ORDERS | {"kafka.isolation.levl": "x"}, True, "isolation.level"),
        (ORDERS | {"startingOffsets": "group"}, True, "with kafka.group.id"),
        (ORDERS | {"kafka.auto.offset.reset": "latest"}, True, "see startingOffsets"),
        (ORDERS | {"kafka.enable.auto.commit": "true"}, True, "see startingOffsets and commitGroup"),
        (ORDERS | {"endingOffsets": "latest"}, True, "a stream has no end"),
        (ORDERS | {"commitGroup": "g"}, False, "commitGroup is for streams"),
        (ORDERS | {"maxOffsetsPerTrigger": "0"}, True, "a whole number above 0"),
        (ORDERS | {"minPartitions": "few"}, True, "a whole number above 0"),
        (ORDERS | {"failOnDataLoss": "no"}, True, "true or false"),
        (ORDERS | {"startingOffsetsByTimestampStrategy": "skip"}, True, "error or latest"),
    ],
)
def test_what_does_not_work_is_reported(said, is_stream, why):
    with pytest.raises(ConfigError, match=why):
        source_options(said, is_stream=is_stream)


@pytest.mark.parametrize("name", ["maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"])
def test_a_batch_read_ignores_the_pace_of_streams(name, caplog):
    assert source_options(ORDERS | {name: "5"}, is_stream=False) == source_options(ORDERS, is_stream=False)
    assert f"{name} is ignored" in caplog.text


def test_without_any_option_a_table_is_suspected():
    with pytest.raises(ConfigError, match="create it without a column list"):
        sink_options({})


def test_sinks():
    made = sink_options(BROKERS | {"topic": "out", "kafka.linger.ms": "5", "checkpointLocation": "/x"})
    assert (made.topic, made.properties["linger.ms"]) == ("out", "5")
    with pytest.raises(ConfigError, match="did you mean topic"):
        sink_options(BROKERS | {"topics": "out"})
    with pytest.raises(ConfigError, match="acks"):
        sink_options(BROKERS | {"kafka.acks": "some"})


def test_secrets_are_not_shown():
    secret = {"kafka.sasl.password": "hush", "kafka.sasl.username": "u", "kafka.sasl.mechanism": "SCRAM-SHA-512"}
    secret |= {"kafka.security.protocol": "SASL_SSL"}
    assert "hush" not in repr(source_options(ORDERS | secret, is_stream=True))
    assert "hush" not in repr(sink_options(BROKERS | secret))


@pytest.mark.parametrize(
    ("topics", "shown", "has", "lacks"),
    [
        (TopicSelection(names=("orders", "bills")), "orders, bills", ("bills", 7), ("bill", 0)),
        (TopicSelection(pattern="orders\\..*"), "topics like 'orders\\\\..*'", ("orders.eu", 0), ("my.orders.eu", 0)),
        (TopicSelection(assigned=(TopicPartition("a", 0), TopicPartition("a", 2))), "a-0, a-2", ("a", 2), ("a", 1)),
    ],
)
def test_whether_a_partition_is_read(topics, shown, has, lacks):
    assert str(topics) == shown
    assert topics.has(TopicPartition(*has))
    assert not topics.has(TopicPartition(*lacks))


def test_options_of_sparks_own_source_that_are_not_needed_here_are_no_errors():
    given = {"groupIdPrefix": "etl", "fetchOffset.numRetries": "5", "fetchoffset.retryintervalms": "10"}
    assert source_options(BROKERS | {"subscribe": "a"} | given, is_stream=True) == source_options(
        BROKERS | {"subscribe": "a"}, is_stream=True
    )


def test_when_a_batch_is_worth_it():
    given = {"subscribe": "a", "minOffsetsPerTrigger": "100", "maxTriggerDelay": "2m", "maxRecordsPerPartition": "7"}
    made = source_options(BROKERS | given, is_stream=True)
    assert (made.min_offsets, made.trigger_delay, made.max_records) == (100, 120.0, 7)
    assert source_options(BROKERS | {"subscribe": "a"}, is_stream=True).trigger_delay == 900.0
    with pytest.raises(ConfigError, match="maxTriggerDelay='soon': this is not a duration"):
        source_options(BROKERS | {"subscribe": "a", "maxTriggerDelay": "soon"}, is_stream=True)


@pytest.mark.parametrize(
    "name", ["kafka.ssl.keystore.key", "kafka.SSL.key.pem", "kafka.ssl.key.store.key", "kafka.ssl_keystore-key"]
)
def test_a_private_key_that_spark_would_show_is_refused(name):
    for read in (lambda options: source_options(options, is_stream=True), sink_options):
        with pytest.raises(ConfigError, match=r"in its plans; put it into a file") as told:
            read(ORDERS | {name: "-----BEGIN PRIVATE KEY-----"})
        assert "BEGIN" not in str(told.value)


@pytest.mark.parametrize("name", ["kafka.enable_auto_commit", "kafka.auto-offset-reset", "KAFKA.Auto.Offset.Reset"])
def test_what_the_source_decides_in_any_spelling(name):
    with pytest.raises(ConfigError, match="the source sets this itself"):
        source_options({"kafka.bootstrap_servers": "a:1", "subscribe": "orders", name: "true"}, is_stream=True)


def test_a_group_in_another_spelling_has_a_position_too():
    told = {"kafka.bootstrap.servers": "a:1", "subscribe": "orders", "kafka.group_id": "g", "startingOffsets": "group"}
    assert source_options(told, is_stream=True).properties["group.id"] == "g"


def test_two_spellings_that_contradict_each_other():
    told = {"kafka.bootstrap.servers": "a:1", "kafka.bootstrap_servers": "b:1", "subscribe": "orders"}
    with pytest.raises(ConfigError, match="given twice"):
        source_options(told, is_stream=True)
