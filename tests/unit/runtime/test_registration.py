"""Functions against their configuration: what does not fit is refused when it is registered."""

from __future__ import annotations

import pyarrow as pa
import pytest

from multilane.app.app import App
from multilane.config.consumer import parse_consumer
from multilane.errors import ConfigError
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.context import Context
from multilane.metrics.observer import NO_OBSERVER
from multilane.runtime.registration import Interceptors
from multilane.wire.records.record import Record


def app_with(tmp_path, **keys) -> App:
    lines = "".join(f"    {key}: {value}\n" for key, value in {"virtualPartitionCount": 4, **keys}.items())
    path = tmp_path / "multilane.yaml"
    path.write_text(
        "clusters:\n  main:\n    clientId: x\n    brokers: localhost:9092\n"
        f"consumers:\n  Orders:\n    groupId: g\n    name: orders\n    cluster: main\n{lines}"
    )
    return App(path)


def single(record: Record) -> None: ...
async def coroutine(record: Record) -> None: ...
def batch(records: list[Record]) -> None: ...
def columns(batch: pa.RecordBatch) -> None: ...
def by_hand(record: Record, done: Acknowledgement) -> None: ...
def with_context(record: Record, context: Context) -> None: ...


@pytest.mark.parametrize(
    ("keys", "function"),
    [
        ({}, single),
        ({}, coroutine),
        ({"virtualPartitionCount": 0}, single),
        ({"batchSize": 10}, batch),
        ({"batchSize": 10}, columns),
        ({"batchSize": 10, "uniqueListener": "true"}, single),
        ({"batchSize": 10, "uniqueListener": "true"}, batch),
        ({"ack": "manual"}, by_hand),
        ({"processes": 2}, single),
    ],
)
def test_what_fits_is_taken(tmp_path, keys, function):
    app = app_with(tmp_path, **keys)
    assert app.listener("orders")(function) is function


@pytest.mark.parametrize(
    ("keys", "function", "options", "said"),
    [
        ({}, batch, {}, "set batchSize above 1"),
        ({"batchSize": 10}, single, {}, "take list"),
        ({}, by_hand, {}, "set ack: manual"),
        ({"ack": "manual"}, single, {}, "parameter of type Acknowledgement"),
        ({"processes": 2}, coroutine, {}, "processes run `def` functions only"),
        ({"processes": 2, "ack": "manual"}, by_hand, {}, "another process cannot acknowledge"),
        ({}, single, {"retry": batch}, "set batchSize above 1"),
        ({}, single, {"retry": single, "batch_retry": batch}, "or batch_retry for a batch listener, not both"),
        ({}, single, {"error": batch}, "take one Record and nothing else"),
        ({}, single, {"error": with_context}, "take one Record and nothing else"),
        ({}, single, {"select": lambda records: records}, "select needs a window"),
        ({}, single, {"route": lambda record: "slow"}, "needs laneClasses"),
        ({"laneClasses": "{slow: 2}"}, single, {}, "give listener"),
        ({"ack": "manual", "retry": "r", "retryOrder": "key"}, by_hand, {}, "retryOrder: none"),
    ],
)
def test_what_does_not_fit_is_refused_with_what_to_do(tmp_path, keys, function, options, said):
    app = app_with(tmp_path, **keys)
    with pytest.raises(ConfigError, match=said):
        app.listener("orders", **options)(function)


@pytest.mark.parametrize(
    ("properties", "protocol"),
    [
        ("", "auto"),
        ("{group.protocol: classic}", "classic"),
        ("{group.protocol: consumer}", "consumer"),
        ("{session.timeout.ms: 20000}", "classic"),
    ],
)
async def test_order_across_retry_leaves_the_protocol_to_the_configuration(tmp_path, properties, protocol):
    """It chose KIP-848, or failed, whatever the properties said."""
    keys = {"retry": "r", "retryOrder": "key"} | ({"properties": properties} if properties else {})
    app = app_with(tmp_path, **keys)
    app.listener("orders")(single)
    config = parse_consumer(app.lane_factories(NO_OBSERVER)["Orders"].source.member_properties).group
    assert config.group_protocol == protocol
    assert protocol == "consumer" or config.partition_assignment_strategy == ("range",)
    assert protocol == "classic" or config.group_remote_assignor == "range"


@pytest.mark.parametrize(
    ("properties", "protocol", "remote"),
    [
        ("", "auto", "range"),
        ("{group.protocol: consumer}", "consumer", "range"),
        ("{group.remote.assignor: uniform}", "consumer", "uniform"),
        ("{session.timeout.ms: 20000}", "classic", None),
    ],
)
async def test_a_topic_and_its_retries_are_both_shared_out(tmp_path, properties, protocol, remote):
    """Brokers gave one member all of the topic, and another all of the retry topic."""
    app = app_with(tmp_path, retry="r", retryOrder="none", **({"properties": properties} if properties else {}))
    app.listener("orders")(single)
    config = parse_consumer(app.lane_factories(NO_OBSERVER)["Orders"].source.member_properties).group
    assert (config.group_protocol, config.group_remote_assignor) == (protocol, remote)
    assert protocol == "consumer" or config.partition_assignment_strategy == ("range", "cooperative-sticky")


def test_properties_given_in_code_are_those_of_a_file(tmp_path):
    app_with(tmp_path)
    path = tmp_path / "multilane.yaml"
    app = App(path, properties={"sasl.password": "hunter2secret", "fetch.min.bytes": "7"})
    assert "hunter2secret" not in repr(app.config)
    assert app.config.cluster("main").properties["fetch.min.bytes"] == "7"
    with pytest.raises(ConfigError, match="did you mean"):
        App(path, properties={"fetch.min.byte": "7"})
    with pytest.raises(ConfigError, match="brokers"):
        App(path, properties={"bootstrap.servers": "elsewhere:9092"})


def test_a_consumer_has_one_listener_and_a_wrong_name_is_reported(tmp_path):
    app = app_with(tmp_path)
    app.listener("ORDERS")(single)
    with pytest.raises(ConfigError, match="already has a listener"):
        app.listener("orders")
    with pytest.raises(ConfigError, match="did you mean"):
        app.listener("ordres")


def test_an_option_that_a_listener_does_not_have_is_named(tmp_path):
    with pytest.raises(TypeError, match=r"no option 'surround'. Options: .*retry"):
        app_with(tmp_path).listener("orders", surround=Interceptors())


def test_an_app_with_nothing_to_run_says_so(tmp_path):
    with pytest.raises(ConfigError, match="nothing to run"):
        app_with(tmp_path).run()


def test_what_is_said_for_one_listener_is_not_for_another():
    outer, one, two = object(), object(), object()
    app_wide = Interceptors(consume=(outer,))
    assert Interceptors(consume=(one,)).within(app_wide).consume == (outer, one)
    assert Interceptors(consume=(two,)).within(app_wide).consume == (outer, two)
    assert app_wide.consume == (outer,)


BATCH = {"batchSize": 10, "retryCount": 2, "retry": "orders.retry", "retryBackoff": "{delay: 0s}"}


@pytest.mark.parametrize(
    ("keys", "function", "options", "topics", "as_rows"),
    [
        (BATCH, batch, {}, ["orders"], True),
        (BATCH, columns, {}, ["orders"], True),
        (BATCH, batch, {}, ["orders.retry"], True),
        ({"batchSize": 10, "uniqueListener": "true"}, single, {}, ["orders"], True),
        (BATCH, batch, {"select": lambda records: (records, ())}, ["orders"], True),
        ({}, single, {}, ["orders"], False),
        (BATCH, batch, {}, ["orders.retry", "orders"], False),
        (BATCH | {"retryBackoff": "{delay: 5s}"}, batch, {}, ["orders.retry"], False),
        (BATCH | {"retryBackoff": "{delay: 5s}"}, batch, {}, ["orders"], True),
        (BATCH | {"orderBy": "partition"}, batch, {}, ["orders"], True),
        (BATCH | {"orderBy": "partition"}, batch, {"select": lambda records: (records, ())}, ["orders"], False),
        (BATCH | {"orderBy": "none"}, batch, {}, ["orders"], False),
        (BATCH | {"laneHash": "murmur2"}, batch, {}, ["orders"], False),
        (BATCH | {"maxInFlightBytes": "1mb"}, batch, {}, ["orders"], False),
        (BATCH | {"laneClasses": "{slow: 2}"}, batch, {"route": lambda record: "slow"}, ["orders"], False),
    ],
)
def test_where_records_wait_as_rows(tmp_path, keys, function, options, topics, as_rows):
    app = app_with(tmp_path, **keys)
    app.listener("orders", **options)(function)
    [registration] = app._registrations.values()
    assert registration.waits_as_rows(topics) is as_rows
