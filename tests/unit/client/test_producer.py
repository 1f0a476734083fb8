"""The producer without a broker: translation, futures, limits, forks."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading

import pytest

from multilane.client.produce.delivery import DeliveryStatus, DeliveryTally
from multilane.client.produce.librdkafka import (
    LogBridge,
    SecretMask,
    TokenSource,
    connection_settings,
    error_from,
    secrets_of,
)
from multilane.client.produce.producer import Producer, producer_settings
from multilane.config.connection import parse_connection
from multilane.config.producer import parse_producer
from multilane.config.security import Token
from multilane.errors import (
    BrokerError,
    ClientClosed,
    ClientFailed,
    ConfigError,
    ForkedClient,
    LibrdkafkaError,
    MultilaneError,
    NetworkError,
    OperationTimeout,
    SaslError,
    TlsError,
)
from multilane.secret import Secret

NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}
SCRAM = {
    "bootstrap.servers": "a:1,[::1]:2",
    "security.protocol": "SASL_SSL",
    "sasl.mechanism": "SCRAM-SHA-512",
    "sasl.username": "u",
    "sasl.password": "open sesame",
    "ssl.ca.location": "/ca.pem",
}


# --- configuration ---------------------------------------------------------------------------------------------------


def test_defaults_are_safe():
    settings = producer_settings(parse_producer(NOWHERE))
    assert settings["acks"] == -1
    assert settings["enable.idempotence"] is True
    assert settings["partitioner"] == "murmur2_random"


@pytest.mark.parametrize(
    ("spelling", "value", "name", "expected"),
    [
        ("linger_ms", 20, "linger.ms", 20.0),
        ("lingerMs", "20ms", "linger.ms", 20.0),
        ("queue.buffering.max.ms", 20, "linger.ms", 20.0),
        ("spring.kafka.producer.properties.linger.ms", 20, "linger.ms", 20.0),
        ("spring.kafka.producer.acks", "all", "acks", -1),
        ("acks", -1, "acks", -1),
        ("queue.buffering.max.kbytes", 64, "queue.buffering.max.kbytes", 64),
        ("buffer-memory", "1mb", "queue.buffering.max.kbytes", 1024),
        ("compression.codec", "zstd", "compression.type", "zstd"),
        ("message.timeout.ms", "10s", "delivery.timeout.ms", 10_000),
        ("request.timeout.ms", 7_000, "request.timeout.ms", 7_000),
    ],
)
def test_spellings(spelling, value, name, expected):
    assert producer_settings(parse_producer({**NOWHERE, spelling: value}))[name] == expected


@pytest.mark.parametrize(
    ("properties", "match"),
    [
        ({"acks": "1"}, "enable.idempotence=false"),
        ({"max.in.flight": 6}, "at most 5"),
        ({"retries": 0}, "above 0"),
        ({"delivery.timeout.ms": 5}, "above linger.ms"),
        ({"linger.ms": 1, "queue.buffering.max.ms": 2}, "with different values"),
        ({"transactional.id": "x"}, "does not support transactions"),
        ({"value.serializer": "x"}, "bytes"),
        ({"compression.type": "brotli"}, "write one of"),
        ({"group.id": "g"}, "is a consumer property"),
        ({"lingr.mss": 3}, "unknown property"),
    ],
)
def test_what_is_refused(properties, match):
    with pytest.raises(ConfigError, match=match):
        parse_producer({**NOWHERE, **properties})


def test_acks_without_idempotence():
    config = parse_producer({**NOWHERE, "acks": 1, "enable.idempotence": False, "max.in.flight": 10})
    assert (config.acks, config.max_in_flight) == (1, 10)


def test_security_in_librdkafkas_words():
    settings = connection_settings(parse_connection(SCRAM))
    expected = {
        "bootstrap.servers": "a:1,[::1]:2",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "u",
        "sasl.password": "open sesame",
        "ssl.ca.location": "/ca.pem",
        "ssl.endpoint.identification.algorithm": "https",
    }
    assert {name: settings.get(name) for name in expected} == expected


def test_a_pem_keystore_holds_key_and_certificate():
    properties = {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.location": "/k.pem"}
    settings = connection_settings(parse_connection({**NOWHERE, **properties, "ssl.key.password": "pass"}))
    assert settings["ssl.certificate.location"] == settings["ssl.key.location"] == "/k.pem"
    assert settings["ssl.key.password"] == "pass"


def test_tls_versions_that_librdkafka_cannot_restrict():
    properties = {"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv1.3"}
    with pytest.raises(ConfigError, match=r"ssl.enabled.protocols"):
        connection_settings(parse_connection({**NOWHERE, **properties}))


def test_times_are_kept_within_librdkafkas_ranges():
    properties = {"retry.backoff.ms": 0, "socket.connection.setup.timeout.ms": 5, "request.timeout.ms": 2**31 - 1}
    settings = connection_settings(parse_connection({**NOWHERE, **properties}))
    assert settings["retry.backoff.ms"] == 1
    assert settings["socket.connection.setup.timeout.ms"] == 1_000
    assert settings["socket.timeout.ms"] == 300_000


def oauth(provider):
    properties = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.provider": provider,
        "sasl.oauthbearer.extensions": "a=1,b=2",
    }
    return parse_connection({**NOWHERE, **properties})


def test_a_token_provider_becomes_a_callback():
    settings = connection_settings(oauth(lambda: Token(Secret("t0ken"), 99.0, "me", {"b": "3"})))
    assert settings["oauth_cb"]("") == ("t0ken", 99.0, "me", {"a": "1", "b": "3"})


def test_a_token_providers_exception_does_not_show_its_text():
    def provider():
        raise RuntimeError("client_secret=hunter2")

    with pytest.raises(SaslError) as caught:
        TokenSource(oauth(provider).security.sasl)("")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_the_first_token_is_not_asked_for_twice():
    asked = []

    def provider():
        asked.append(1)
        return Token(Secret(f"token-{len(asked)}"), 99.0)

    source = TokenSource(oauth(provider).security.sasl)
    source.prefetch()
    assert [source("")[0], source("")[0]] == ["token-1", "token-2"]


def test_a_token_provider_must_give_a_token():
    with pytest.raises(SaslError, match="not a Token"):
        TokenSource(oauth(lambda: "t0ken").security.sasl)("")


# --- errors and the log ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("_MSG_TIMED_OUT", OperationTimeout),
        ("_TRANSPORT", NetworkError),
        ("_ALL_BROKERS_DOWN", NetworkError),
        ("_AUTHENTICATION", SaslError),
        ("_SSL", TlsError),
        ("_PURGE_QUEUE", ClientClosed),
        ("_INVALID_ARG", ConfigError),
        ("_UNKNOWN_PARTITION", BrokerError),
        ("_FS", LibrdkafkaError),
        ("TOPIC_AUTHORIZATION_FAILED", BrokerError),
        ("MSG_SIZE_TOO_LARGE", BrokerError),
    ],
)
def test_errors_become_ours(name, kind):
    from confluent_kafka import KafkaError

    error = error_from(KafkaError(getattr(KafkaError, name), "because"), "a record to t", SecretMask())
    assert type(error) is kind
    assert "a record to t" in str(error)
    assert "because" in str(error)


def test_an_unknown_topic_has_been_asked_for_long_enough():
    from confluent_kafka import KafkaError

    assert not error_from(KafkaError(KafkaError._UNKNOWN_TOPIC), "x", SecretMask()).retriable


def test_the_same_line_is_logged_once_in_a_while(caplog):
    now = [0.0]
    bridge = LogBridge(SecretMask(), lambda: now[0])
    attempt = "%s [%s] [thrd:a:1/1]: a:%d/1: Connect failed: Connection refused (after %dms in state CONNECT)"
    for number in range(50):
        bridge.log(logging.ERROR, attempt, "FAIL", "rdkafka#1", 9092, number)
    bridge.log(logging.WARNING, "%s [%s] %s", "GETPID", "rdkafka#1", "something else")
    now[0] = 30.0
    bridge.log(logging.ERROR, attempt, "FAIL", "rdkafka#1", 9092, 7)
    assert [r.getMessage() for r in caplog.records] == [
        "librdkafka: FAIL: a:9092/1: Connect failed: Connection refused (after 0ms in state CONNECT)",
        "librdkafka: GETPID: something else",
        "librdkafka: FAIL: a:9092/1: Connect failed: Connection refused (after 7ms in state CONNECT) "
        "(50 times since the last such line)",
    ]


def test_kinds_of_lines_do_not_pile_up():
    bridge = LogBridge(SecretMask(), lambda: 0.0)
    for number in range(1_000):
        bridge.log(logging.ERROR, "FAIL %s", chr(0x4E00 + number))
    assert len(bridge._kinds) <= 100


def test_no_secret_in_logs_and_errors(caplog):
    from confluent_kafka import KafkaError

    mask = SecretMask(secrets_of(parse_connection(SCRAM)))
    with caplog.at_level(logging.DEBUG):
        LogBridge(mask).log(logging.WARNING, "%s [%s] %s", "FAIL", "rdkafka#1", "password open sesame refused")
    assert "password *** refused" in caplog.text
    assert "sesame" not in caplog.text
    assert "sesame" not in str(error_from(KafkaError(KafkaError._AUTHENTICATION, "open sesame"), "x", mask))


def test_librdkafka_takes_the_settings_and_says_what_it_does_not():
    from confluent_kafka import Producer as Librdkafka

    assert Librdkafka(producer_settings(parse_producer(NOWHERE)), logger=LogBridge(SecretMask())).flush(0) == 0
    broken = {"security.protocol": "SSL", "ssl.ca.location": "/does/not/exist.pem"}
    with Producer({**NOWHERE, **broken}) as producer, pytest.raises(MultilaneError, match="configuration"):
        producer.send("t", b"x")


# --- life ------------------------------------------------------------------------------------------------------------


def test_nothing_starts_before_the_first_send():
    code = (
        "import sys, threading\n"
        "from multilane import Producer\n"
        "p = Producer({'bootstrap.servers': '127.0.0.1:1'})\n"
        "p.flush(); p.close()\n"
        "assert 'confluent_kafka' not in sys.modules and threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_close_gives_up_what_is_left_and_ends_the_thread():
    producer = Producer(NOWHERE)
    single = producer.send("t", b"x")
    many = producer.send_many([("t", b"y"), ("t", b"z")])
    thread = producer._thread
    assert isinstance(thread, threading.Thread)
    producer.close(timeout=0.0)
    for future in (single, many):
        with pytest.raises(ClientClosed, match="closed before"):
            future.result(5)
    assert not thread.is_alive()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send("t", b"x")


def test_senders_that_race_with_close_hear_of_every_record():
    producer = Producer(NOWHERE)
    futures: list[list] = [[] for _ in range(3)]
    begun = threading.Barrier(4)

    def send(mine):
        begun.wait(10)
        try:
            while True:
                mine.append(producer.send("t", b"x"))
        except ClientClosed:
            return

    threads = [threading.Thread(target=send, args=(mine,)) for mine in futures]
    for thread in threads:
        thread.start()
    begun.wait(10)
    producer.close(timeout=0.05)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    for future in (f for mine in futures for f in mine):
        assert isinstance(future.exception(5), ClientClosed)


def test_flush_says_how_many_are_open():
    with Producer(NOWHERE) as producer:
        producer.send("t", b"x")
        with pytest.raises(OperationTimeout, match="1 records"):
            producer.flush(timeout=0.1)
        producer.close(timeout=0.0)


def test_no_room_waits_for_max_block_and_no_longer():
    with Producer({**NOWHERE, "buffer.memory": 2048, "max.block.ms": 50}) as producer:
        producer.send("t", bytes(1500))
        with pytest.raises(OperationTimeout, match=r"max\.block\.ms"):
            producer.send("t", bytes(1500))
        producer.close(timeout=0.0)


def test_out_of_time_is_reported():
    with Producer({**NOWHERE, "delivery.timeout.ms": 100, "linger.ms": 0}) as producer:
        future = producer.send("t", b"x")
        with pytest.raises(OperationTimeout, match=r"delivery\.timeout\.ms"):
            future.result(30)


def test_a_record_that_is_too_large_is_refused_at_once():
    with Producer({**NOWHERE, "max.request.size": 1_000}) as producer, pytest.raises(BrokerError) as caught:
        producer.send("t", bytes(5_000))
    assert caught.value.code == 10


@pytest.mark.parametrize("bad", [{"partition": -1}, {"timestamp": -5}])
def test_nonsense_is_refused(bad):
    with Producer(NOWHERE) as producer, pytest.raises(ValueError, match="write"):
        producer.send("t", b"x", **bad)


def test_a_delivery_error_that_cannot_be_read_still_ends_the_future():
    tally = DeliveryTally(DeliveryStatus(lambda error, message: error.nonsense()))
    tally.seal(1)
    tally.on_delivery("boom", None)
    with pytest.raises(ClientFailed, match="could not be read"):
        tally.future.result(0)


def test_sending_nothing_is_done_at_once():
    with Producer(NOWHERE) as producer:
        assert producer.send_many([]).result(0).records == 0


def test_after_a_fork():
    """In the child the producer says so, and the child can still end: librdkafka's handle is never freed there."""
    code = (
        "import os, sys\n"
        "from multilane import Producer\n"
        "from multilane.errors import ForkedClient\n"
        "p = Producer({'bootstrap.servers': '127.0.0.1:1'})\n"
        "p.send('t', b'x')\n"
        "child = os.fork()\n"
        "if child == 0:\n"
        "    try:\n"
        "        p.send('t', b'y')\n"
        "    except ForkedClient:\n"
        "        p.close(); del p\n"
        "        sys.exit(7)\n"
        "    sys.exit(1)\n"
        "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7\n"
        "p.close(0.0)\n"
    )
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


def test_pid_is_what_tells_a_fork(monkeypatch):
    producer = Producer(NOWHERE)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(ForkedClient):
        producer.flush()


# --- many at once ----------------------------------------------------------------------------------------------------


class Delivered:
    """What confluent-kafka hands to a delivery callback; its own class cannot be made by hand."""

    def __init__(self, topic: str, partition: int, offset: int) -> None:
        self._facts = (topic, partition, offset)

    def topic(self):
        return self._facts[0]

    def partition(self):
        return self._facts[1]

    def offset(self):
        return self._facts[2]


def test_a_tally_counts_by_partition_and_ends_when_sealed():
    tally = DeliveryTally(DeliveryStatus(lambda error, message: MultilaneError("no")))
    for place in (("t", 0, 5), ("t", 1, 9), ("t", 0, 3)):
        tally.on_delivery(None, Delivered(*place))
    assert not tally.future.done()
    tally.seal(3)
    done = tally.future.result(0)
    assert done.records == 3
    assert {tuple(p): (w.records, w.first_offset, w.last_offset) for p, w in done.partitions.items()} == {
        ("t", 0): (2, 3, 5),
        ("t", 1): (1, 9, 9),
    }


def test_a_tally_tells_the_first_failure_when_all_is_known():
    tally = DeliveryTally(DeliveryStatus(lambda error, message: MultilaneError(error)))
    tally.seal(3)
    tally.on_delivery("first", None)
    tally.on_delivery("second", None)
    assert not tally.future.done()
    tally.on_delivery(None, Delivered("t", 0, 0))
    with pytest.raises(MultilaneError, match="first"):
        tally.future.result(0)
