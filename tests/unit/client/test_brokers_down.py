"""With all brokers down, what fails says that the connection was refused."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator

import pytest

from multilane import Admin, Consumer, Producer
from multilane.errors import MultilaneError, OperationTimeout

SHORT = 0.5


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that is ours and that nobody listens on."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def consumer(nobody) -> Iterator[Consumer]:
    found = Consumer({"bootstrap.servers": nobody, "group.id": "g", "enable.auto.commit": False})
    yield found
    found.close(0)


PLACE = ("orders", 0)
CALLS = {
    "end_offsets": lambda c: c.end_offsets([PLACE], SHORT),
    "beginning_offsets": lambda c: c.beginning_offsets([PLACE], SHORT),
    "commit": lambda c: c.commit({PLACE: 1}, SHORT),
    "committed": lambda c: c.committed([PLACE], SHORT),
    "position": lambda c: c.position(PLACE, SHORT),
    "partitions_for": lambda c: c.partitions_for("orders", SHORT),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_consumer_names_the_refused_connection(consumer, call):
    consumer.assign([PLACE])
    with pytest.raises(OperationTimeout, match="Connection refused"):
        CALLS[call](consumer)


def test_so_does_an_admin_client(nobody):
    with (
        Admin({"bootstrap.servers": nobody}) as admin,
        pytest.raises(MultilaneError, match=r"refused|brokers are down"),
    ):
        admin.create_topics({"orders": 1}, timeout=SHORT)


def test_a_producer_logs_a_line_and_not_one_per_attempt(nobody, caplog, capfd):
    caplog.set_level(logging.INFO, "multilane")
    properties = {"bootstrap.servers": nobody, "delivery.timeout.ms": 2_000, "reconnect.backoff.ms": 1}
    with Producer(properties) as producer, pytest.raises(OperationTimeout):
        producer.send("orders", b"x").result(20)
    refused = [r for r in caplog.records if "Connection refused" in r.getMessage()]
    assert len(refused) == 1, [r.getMessage() for r in refused]
    assert refused[0].name == "multilane.client.produce.librdkafka"
    assert not capfd.readouterr().err
