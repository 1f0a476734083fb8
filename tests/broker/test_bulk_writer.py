"""Writing in bulk: all of it is stored when `flush` returns, or it raises."""

from __future__ import annotations

import os

import pytest

from broker.reading import read_rows
from multilane.client.consumer import Consumer
from multilane.client.produce.bulk import BulkWriter
from multilane.errors import ForkedClient, MultilaneError
from multilane.types import TopicPartition

pytestmark = pytest.mark.broker


def writer_to(kafka, **properties) -> BulkWriter:
    return BulkWriter({"bootstrap.servers": kafka.bootstrap(), **properties})


def write(writer, *records):
    writer.put(records)
    writer.flush()


def read(kafka, topic, partitions, count):
    with Consumer({"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(TopicPartition(topic, n) for n in range(partitions))
        return read_rows(consumer, count)


def test_all_is_stored_in_order(kafka, topic):
    name = topic(2)
    writer = writer_to(kafka)
    records = [
        (name, b"%d" % n, b"k%d" % (n % 7), (("n", b"%d" % n),) if n % 5 == 0 else (), n % 2) for n in range(9_000)
    ]
    assert writer.put(iter(records)) == 9_000
    writer.flush()
    found = read(kafka, name, 2, 9_000)
    for partition in (0, 1):
        own = [int(row.value) for row in found if row.partition == partition]
        assert own == list(range(partition, 9_000, 2))
    assert all(row.headers == ((("n", row.value),) if int(row.value) % 5 == 0 else ()) for row in found)
    assert writer.put([(name, None, None, (), 0)]) == 1, "and once more with the same one"
    writer.flush()
    assert [row.value for row in read(kafka, name, 2, 9_001) if row.value is None] == [None]
    writer.discard()


@pytest.mark.parametrize("how", ["put", "put_plain"])
def test_a_full_queue_is_waited_for(kafka, topic, how):
    name = topic(1)
    writer = writer_to(kafka, **{"buffer.memory": 1_048_576})
    records = ((name, b"%d" % n + bytes(10_000), b"k") for n in range(500))
    assert getattr(writer, how)(records) == 500
    writer.flush()
    assert [int(row.value.rstrip(b"\0")) for row in read(kafka, name, 1, 500)] == list(range(500))
    writer.discard()


def test_plain_records_are_stored_in_order_and_what_is_not_is_reported(kafka, topic):
    name = topic(1)
    writer = writer_to(kafka, **{"delivery.timeout.ms": 3_000, "request.timeout.ms": 1_000, "max.block.ms": 3_000})
    assert writer.put_plain((name, b"%d" % n if n % 2 else None, None) for n in range(3_000)) == 3_000
    writer.flush()
    stored = [row.value for row in read(kafka, name, 1, 3_000)]
    assert stored == [b"%d" % n if n % 2 else None for n in range(3_000)]
    writer.put_plain([("there-is-no-such-topic", b"x", None)])
    with pytest.raises(MultilaneError, match="a record to"):
        writer.flush()
    writer.discard()


@pytest.mark.parametrize("record", [("there-is-no-such-topic", b"x"), None], ids=["topic", "partition"])
def test_what_is_not_stored_is_reported(kafka, topic, record):
    name = topic(1)
    times = {"delivery.timeout.ms": 3_000, "request.timeout.ms": 1_000, "max.block.ms": 3_000}
    writer = writer_to(kafka, **times)
    with pytest.raises(MultilaneError, match="a record to"):
        write(writer, (name, b"good"), record or (name, b"x", None, (), 7))
    writer.discard()


def test_without_a_broker_it_ends():
    times = {"delivery.timeout.ms": 1_000, "request.timeout.ms": 500, "max.block.ms": 500}
    writer = BulkWriter({"bootstrap.servers": "127.0.0.1:1", **times})
    with pytest.raises(MultilaneError):
        write(writer, ("t", b"x"))
    with pytest.raises(MultilaneError):
        write(writer, ("t", b"of no use any more"))
    writer.discard()


def test_a_wrong_password_is_reported_at_once(kafka):
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice"}
    servers = {"bootstrap.servers": kafka.bootstrap("SASL_PLAINTEXT")}
    writer = BulkWriter({**servers, **login, "sasl.password": "not-this-one"})
    with pytest.raises(MultilaneError) as caught:
        write(writer, ("t", b"x"))
    assert "not-this-one" not in str(caught.value)
    writer.discard()


def test_one_from_before_a_fork_is_refused(kafka, topic):
    writer = writer_to(kafka)
    writer.put([(topic(1), b"x")])
    writer.flush()
    child = os.fork()
    if child == 0:
        try:
            writer.put([("t", b"x")])
        except ForkedClient:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    writer.discard()
