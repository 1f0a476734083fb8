"""The producer against a real broker: what it says was stored is what is there."""

from __future__ import annotations

import asyncio
import base64
import json
import threading

import pytest

from multilane import Admin, Consumer, Producer, Secret, Token, TopicPartition
from multilane.client.produce.producer import OutgoingRecord
from multilane.clock import SystemClock
from multilane.errors import AuthenticationError, BrokerError, SaslError, TlsError

pytestmark = pytest.mark.broker


@pytest.fixture
def producer(kafka):
    with Producer({"bootstrap.servers": kafka.bootstrap()}) as made:
        yield made


def read(kafka, topic, count, partitions=1, **properties):
    """That many records of a topic, in the order of each partition."""
    settings = {"bootstrap.servers": kafka.bootstrap(), "auto.offset.reset": "earliest", **properties}
    found = []
    with Consumer(settings) as consumer:
        consumer.assign(TopicPartition(topic, p) for p in range(partitions))
        while len(found) < count:
            blocks = consumer.poll(20)
            assert blocks, f"{len(found)} of {count}"
            found += blocks.records()
    return found


def test_a_record_is_where_the_future_says(kafka, topic, producer):
    name = topic(3)
    sent = producer.send(name, b"v", key=b"k", headers=[("h", b"1"), ("n", None)], partition=2, timestamp=1_234_567)
    stored = sent.result(20)
    assert (stored.topic, stored.partition, stored.offset, stored.timestamp) == (name, 2, 0, 1_234_567)
    (record,) = read(kafka, name, 1, 3)
    assert (record.partition, record.offset, record.timestamp) == (2, 0, 1_234_567)
    assert (record.key, record.value) == (b"k", b"v")
    assert tuple(record.headers) == (("h", b"1"), ("n", None))


@pytest.mark.parametrize(("value", "stored"), [(None, None), ("text", b"text"), (b"", b""), (memoryview(b"m"), b"m")])
def test_payloads(kafka, topic, producer, value, stored):
    name = topic()
    producer.send(name, value, key=b"k").result(20)
    (record,) = read(kafka, name, 1)
    assert record.value == stored


def test_many_records_in_order_and_counted(kafka, topic, producer):
    name = topic(3)
    records = [OutgoingRecord(name, b"%d" % n, b"key-%d" % (n % 50)) for n in range(20_000)]
    done = producer.send_many(records)
    producer.flush(60)
    told = done.result(0)
    assert told.records == 20_000
    found = read(kafka, name, 20_000, 3)
    for partition, written in told.partitions.items():
        of_it = [r for r in found if r.partition == partition.partition]
        assert (len(of_it), of_it[0].offset, of_it[-1].offset) == (
            written.records,
            written.first_offset,
            written.last_offset,
        )
        by_key = {}
        for record in of_it:
            by_key.setdefault(record.key, []).append(int(record.value))
        assert all(numbers == sorted(numbers) for numbers in by_key.values())
    assert sorted(int(r.value) for r in found) == list(range(20_000))


def test_keys_go_where_java_puts_them(kafka, topic, producer):
    """The same hash as Java's, so that both agree on where a key lives: told by Kafka's own console producer."""
    name = topic(7)
    keys = [f"customer-{n}" for n in range(40)]
    ours = {k: producer.send(name, b"x", key=k).result(20).partition for k in keys}
    java = topic(7)
    kafka.tool(
        "org.apache.kafka.tools.ConsoleProducer",
        *("--bootstrap-server", kafka.bootstrap(), "--topic", java, "--reader-property", "parse.key=true"),
        text_in="".join(f"{k}\tx\n" for k in keys),
    )
    theirs = {r.key.decode(): r.partition for r in read(kafka, java, 40, 7)}
    assert ours == theirs


def test_a_full_queue_makes_senders_wait_and_nobody_starve(kafka, topic):
    """Four threads through a queue that holds a few records: all of them get through."""
    name = topic()
    with Producer({"bootstrap.servers": kafka.bootstrap(), "buffer.memory": 8_192, "linger.ms": 0}) as producer:
        futures: list[list] = [[] for _ in range(4)]

        def send(mine):
            mine += [producer.send(name, bytes(1_000)) for _ in range(100)]

        threads = [threading.Thread(target=send, args=(mine,)) for mine in futures]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
        offsets = sorted(f.result(60).offset for mine in futures for f in mine)
    assert offsets == list(range(400))


async def test_futures_can_be_awaited(topic, producer):
    name = topic()
    sent = [asyncio.wrap_future(producer.send(name, b"%d" % n)) for n in range(10)]
    stored = await asyncio.wait_for(asyncio.gather(*sent), 30)
    assert [s.offset for s in stored] == list(range(10))


def test_close_waits_for_what_was_sent(kafka, topic):
    name = topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap(), "linger.ms": 60_000})
    future = producer.send(name, b"x")
    producer.close()
    assert future.result(0).offset == 0


def test_an_unknown_topic_is_an_error(kafka):
    properties = {"bootstrap.servers": kafka.bootstrap(), "max.block.ms": 500}
    with Producer(properties) as producer, pytest.raises(BrokerError) as caught:
        producer.send("no-such-topic", b"x").result(60)
    assert caught.value.code == 3
    assert not caught.value.retriable


def test_a_partition_that_does_not_exist_is_an_error(topic, producer):
    with pytest.raises(BrokerError) as caught:
        producer.send(topic(1), b"x", partition=5).result(60)
    assert caught.value.code == 3


def test_a_record_larger_than_the_topic_takes(topic, producer):
    name = topic(max_message_bytes=2_000)
    with pytest.raises(BrokerError) as caught:
        producer.send(name, bytes(10_000)).result(60)
    assert caught.value.code == 10


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed(kafka, topic, compression):
    name = topic()
    with Producer({"bootstrap.servers": kafka.bootstrap(), "compression.type": compression}) as producer:
        producer.send_many((name, b"value %d" % n) for n in range(500)).result(30)
    assert [r.value for r in read(kafka, name, 500)] == [b"value %d" % n for n in range(500)]


# --- security --------------------------------------------------------------------------------------------------------


def secured(kafka, credentials, listener, mechanism):
    user, password = credentials
    return {
        "bootstrap.servers": kafka.bootstrap(listener),
        "security.protocol": listener,
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": password,
        **({"ssl.ca.location": str(kafka.certificates.ca)} if listener.endswith("SSL") else {}),
    }


@pytest.mark.parametrize(
    ("listener", "mechanism"),
    [("SASL_SSL", "PLAIN"), ("SASL_SSL", "SCRAM-SHA-512"), ("SASL_PLAINTEXT", "SCRAM-SHA-256")],
)
def test_logged_in(kafka, topic, credentials, listener, mechanism):
    properties = secured(kafka, credentials, listener, mechanism)
    name = topic()
    with Producer(properties) as producer:
        assert producer.send(name, b"x").result(30).offset == 0
    with Admin(properties) as admin:
        admin.create_partitions({name: 2})
        assert len(admin.topics([name])[name].partitions) == 2


def encoded(part):
    return base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode()


def unsigned_token():
    """What Kafka's own validator for development accepts."""
    now = int(SystemClock().wall())
    claims = {"sub": "alice", "iat": now, "exp": now + 3_600}
    return Token(Secret(f"{encoded({'alg': 'none'})}.{encoded(claims)}."), now + 3_600.0, "alice")


def oauth(kafka, provider):
    return {
        "bootstrap.servers": kafka.bootstrap("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(kafka.certificates.ca),
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.provider": provider,
    }


def test_with_a_token(kafka, topic):
    name = topic()
    with Producer(oauth(kafka, unsigned_token)) as producer:
        assert producer.send(name, b"x").result(30).offset == 0
    with Admin(oauth(kafka, unsigned_token)) as admin:
        admin.create_partitions({name: 2})
        assert len(admin.topics([name])[name].partitions) == 2


def test_a_token_that_is_not_to_be_had_is_reported_at_once(kafka, topic, caplog):
    def provider():
        raise RuntimeError("client_secret=hunter2")

    with Producer(oauth(kafka, provider)) as producer, pytest.raises(SaslError, match="RuntimeError") as caught:
        producer.send(topic(), b"x").result(30)
    assert "hunter2" not in str(caught.value) + caplog.text


@pytest.mark.parametrize("keystore", ["file", "text"])
def test_with_a_certificate(kafka, topic, keystore):
    path = kafka.certificates.client.keystore
    pem = path.read_text()
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(path)}
    if keystore == "text":
        own = {"ssl.keystore.certificate.chain": pem, "ssl.keystore.key": pem}
    trust = {"ssl.truststore.certificates": kafka.certificates.ca.read_text()}
    properties = {"bootstrap.servers": kafka.bootstrap("MTLS"), "security.protocol": "SSL", **trust, **own}
    with Producer(properties) as producer:
        assert producer.send(topic(), b"x").result(30).offset == 0


def test_a_wrong_password_is_reported_at_once(kafka, topic, credentials, caplog):
    wrong = ("alice", "not the password")
    properties = secured(kafka, wrong, "SASL_SSL", "SCRAM-SHA-512")
    with Producer(properties) as producer:
        future = producer.send(topic(), b"x")
        with pytest.raises(SaslError):
            future.result(30)  # far below delivery.timeout.ms
    assert "not the password" not in caplog.text


def test_an_authority_that_is_not_ours_is_reported_at_once(kafka, topic):
    properties = {"bootstrap.servers": kafka.bootstrap("SSL"), "security.protocol": "SSL"}
    with Producer(properties) as producer, pytest.raises(AuthenticationError) as caught:
        producer.send(topic(), b"x").result(30)
    assert isinstance(caught.value, TlsError)
