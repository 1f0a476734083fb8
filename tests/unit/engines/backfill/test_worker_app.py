"""How a consumer's configuration is read for history: no retry topic, attempts in place, windows that do not wait."""

from __future__ import annotations

import json

import pytest

from multilane.app.app import App
from multilane.clock import ManualClock
from multilane.engines.backfill.worker_app import _for_history, in_place_for
from multilane.errors import ConfigError
from multilane.wire.records.record import Record

TOPICS = {"retry": "orders.retry", "error": "orders.error"}


@pytest.fixture
def app(tmp_path):
    def make(**consumer):
        told = {
            "clusters": {"main": {"clientId": "shop", "brokers": "localhost:1"}},
            "consumers": {"orders": {"groupId": "g", "name": "orders", "cluster": "main", **consumer}},
        }
        path = tmp_path / "multilane.yaml"
        path.write_text(json.dumps(told))
        return App(path)

    return make


@pytest.mark.parametrize(
    ("consumer", "again"),
    [
        ({}, 0),
        (TOPICS, 1),
        (TOPICS | {"retryCount": 3}, 3),
        (TOPICS | {"retryCount": 3, "ack": "manual"}, 0),
    ],
)
def test_as_many_attempts_as_live(app, consumer, again):
    made = app(**consumer, retryBackoff={"delay": "0s"})
    in_place = in_place_for(
        made.config.consumer("orders"), made.config.cluster("main"), ManualClock(), to_error_topic=False
    )
    assert in_place.retries == again
    assert in_place.retry_policy.error is None
    assert not in_place.waits


def test_copies_for_the_error_topic_belong_back_into_the_live_retry_topic(app):
    made = app(**TOPICS)
    in_place = in_place_for(
        made.config.consumer("orders"), made.config.cluster("main"), ManualClock(), to_error_topic=True
    )
    assert (in_place.retry_policy.error, in_place.retry_policy.target) == ("orders.error", "orders.retry")
    assert in_place.waits


def test_the_topic_alone_is_read(app):
    made = app(**TOPICS, retryOrder="key", batchSize=10, virtualPartitionCount=4)

    @made.listener("orders")
    async def index(records: list[Record]) -> None: ...

    registration = _for_history(made.full_registration("ORDERS"))
    config = registration.config
    assert (config.retry, config.error, config.retry_order) == (None, None, "none")
    assert registration.window.latency < 1.0
    assert registration.window.size == 10
    assert made.config.consumer("orders").retry == "orders.retry", "the application's own stays as it is"


def test_a_consumer_without_a_listener(app):
    with pytest.raises(ConfigError, match=r"'orders' has no listener: register one with @app.listener\('orders'"):
        app().full_registration("orders")
    with pytest.raises(ConfigError, match="no consumer 'order'"):
        app().full_registration("order")
