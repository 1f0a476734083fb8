"""The properties that the configuration gives multilane's own clients, which must accept them."""

from __future__ import annotations

import pickle

import pytest

from multilane.config.app import (
    AppConfig,
    ClusterConfig,
    ConsumerGroupConfig,
    ErrorConfig,
    ShovelConfig,
    admin_properties,
    consumer_properties,
    error_consumer_properties,
    producer_properties,
)
from multilane.config.connection import parse_connection
from multilane.config.consumer import parse_consumer
from multilane.config.producer import parse_producer
from multilane.config.reset import ResetPolicy
from multilane.config.security import PasswordLogin, SecurityProtocol
from multilane.config.tls import PemFile, PemText
from multilane.errors import ConfigError
from multilane.secret import Secret


def cluster(**facts):
    return ClusterConfig(name="k", client_id="shop", brokers=("a:1", "b:2"), **facts)


def group(**facts):
    return ConsumerGroupConfig(name="c", group_id="g", topic="t", cluster="k", **facts)


def test_a_consumer_by_default():
    assert consumer_properties(group(), cluster()) == {
        "bootstrap.servers": "a:1,b:2",
        "client.id": "shop",
        "group.id": "g",
        "auto.offset.reset": "latest",
        "max.partition.fetch.bytes": 1 << 20,
        "max.poll.interval.ms": 60_000,
        "enable.auto.commit": False,
    }


def test_the_client_accepts_it():
    parsed = parse_consumer(consumer_properties(group(offset_initial="oldest", rebalance_timeout=90.0), cluster()))
    assert parsed.group.group_protocol == "auto"
    assert parsed.group.max_poll_interval == 90.0
    assert not parsed.group.enable_auto_commit
    assert parsed.auto_offset_reset.policy is ResetPolicy.EARLIEST


@pytest.mark.parametrize(("protocol", "handed"), [(None, False), ("consumer", False), ("classic", True)])
def test_sessions_are_handed_to_classic_groups_only(protocol, handed):
    made = consumer_properties(group(group_protocol=protocol, session_timeout=30.0), cluster())
    assert made.get("group.protocol") == protocol
    assert ("session.timeout.ms" in made, "heartbeat.interval.ms" in made) == (handed, handed)
    parsed = parse_consumer(made).group
    assert parsed.group_protocol == (protocol or "auto")
    if handed:
        assert (parsed.session_timeout, parsed.heartbeat_interval) == (30.0, 3.0)


def test_a_property_may_choose_the_protocol():
    made = consumer_properties(group(properties={"group.protocol": "classic"}), cluster())
    assert (made["session.timeout.ms"], made["heartbeat.interval.ms"]) == (10_000, 3_000)
    own = consumer_properties(group(properties={"session.timeout.ms": "20s"}), cluster())
    assert parse_consumer(own).group.session_timeout == 20.0
    assert parse_consumer(own).group.group_protocol == "classic"


def test_settings_closer_to_the_consumer_win():
    shared = cluster(properties={"fetch.message.max.bytes": "4mb", "client.rack": "r", "linger.ms": "9"})
    assert consumer_properties(group(), shared)["max.partition.fetch.bytes"] == "4mb"
    assert consumer_properties(group(fetch_max_bytes=5), shared)["max.partition.fetch.bytes"] == 5
    own = group(properties={"MAX_PARTITION_FETCH_BYTES": "7", "clientRack": "s"})
    made = consumer_properties(own, shared)
    assert (made["max.partition.fetch.bytes"], made["client.rack"]) == ("7", "s")
    assert "linger.ms" not in made
    parse_consumer(made)


def test_a_property_in_another_unit_replaces_the_first():
    made = consumer_properties(
        group(properties={"queued.max.messages.kbytes": "2048"}), cluster(properties={"fetch.buffer.bytes": "9mb"})
    )
    assert parse_consumer(made).fetch_buffer_bytes == 2 << 20


def test_auto_commit_stays_off():
    made = consumer_properties(group(properties={"enable.auto.commit": "true"}), cluster())
    assert made["enable.auto.commit"] is False


def test_auth_is_scram_over_tls():
    auth = {"username": "u", "password": Secret("geheim"), "certificates": ["ca.pem"]}
    for parsed in (
        parse_consumer(consumer_properties(group(), cluster(auth=auth))).connection,
        parse_producer(producer_properties(cluster(auth=auth), durable=True)).connection,
    ):
        assert parsed.security.protocol is SecurityProtocol.SASL_SSL
        assert parsed.security.sasl == PasswordLogin("SCRAM-SHA-512", "u", Secret("geheim"))
        assert parsed.security.tls is not None
        assert parsed.security.tls.trust == PemFile("ca.pem")


def test_other_security_is_set_with_properties():
    auth = {"username": "u", "password": "p"}
    made = consumer_properties(group(), cluster(auth=auth, properties={"sasl.mechanism": "SCRAM-SHA-256"}))
    login = parse_consumer(made).connection.security.sasl
    assert isinstance(login, PasswordLogin)
    assert login.mechanism == "SCRAM-SHA-256"
    plain = cluster(properties={"security.protocol": "SSL", "ssl.ca.location": "x.pem"})
    assert parse_consumer(consumer_properties(group(), plain)).connection.security.protocol is SecurityProtocol.SSL


def test_several_certificates_are_one_text(tmp_path):
    for name in ("a.pem", "b.pem"):
        (tmp_path / name).write_text(f"-----BEGIN CERTIFICATE-----\n{name}\n-----END CERTIFICATE-----")
    paths = [str(tmp_path / name) for name in ("a.pem", "b.pem")]
    secured = cluster(auth={"username": "u", "password": "p", "certificates": paths})
    tls = parse_consumer(consumer_properties(group(), secured)).connection.security.tls
    assert tls is not None
    assert isinstance(tls.trust, PemText)
    assert tls.trust.text.reveal().count("BEGIN CERTIFICATE") == 2
    (tmp_path / "b.pem").unlink()
    with pytest.raises(ConfigError, match=r"b\.pem cannot be read"):
        consumer_properties(group(), secured)


def test_producers_follow_the_cluster():
    parsed = parse_producer(producer_properties(cluster(), durable=False))
    assert (parsed.acks, parsed.idempotence, parsed.connection.request_timeout) == (1, False, 10.0)
    settings = {"required_acks": "WaitForAll", "timeout": 5.0, "max_message_bytes": "2mb", "compression": "zstd"}
    parsed = parse_producer(
        producer_properties(cluster(producer=settings, properties={"linger.ms": "7"}), durable=False)
    )
    assert (parsed.acks, parsed.idempotence, parsed.connection.request_timeout) == (-1, True, 5.0)
    assert (parsed.max_request_size, parsed.compression, parsed.linger) == (2 << 20, "zstd", 0.007)
    parsed = parse_producer(producer_properties(cluster(properties={"acks": "all"}), durable=False))
    assert (parsed.acks, parsed.idempotence) == (-1, True)


def test_copies_of_failed_records_are_always_durable():
    weak = {"acks": "0", "enable.idempotence": "false", "retries": "0", "max.in.flight": "100", "linger.ms": "3"}
    parsed = parse_producer(
        producer_properties(
            cluster(properties=weak, producer={"required_acks": "0", "max_message_bytes": 5_000}), durable=True
        )
    )
    assert parsed.max_request_size == 1_000_000_000, "it is for the topic to say how large a copy may be"
    assert (parsed.acks, parsed.idempotence, parsed.linger) == (-1, True, 0.003)
    assert parsed.retries > 0
    assert parsed.max_in_flight <= 5
    free = parse_producer(producer_properties(cluster(properties=weak), durable=False))
    assert (free.acks, free.idempotence, free.max_in_flight) == (0, False, 100)


@pytest.mark.parametrize("kind", [ErrorConfig, ShovelConfig])
def test_error_consumers(kind):
    facts = {"name": "s", "topics": ("x",), "max_error_count": 1, "cluster": "k"} if kind is ShovelConfig else {}
    config = kind(group_id="e", cron="@daily", properties={"client.rack": "r"}, **facts)
    made = error_consumer_properties(config, cluster())
    parsed = parse_consumer(made)
    assert parsed.group.group_id == "e"
    assert parsed.auto_offset_reset.policy is ResetPolicy.EARLIEST
    assert parsed.connection.client_rack == "r"
    assert "session.timeout.ms" not in made


def test_an_admin_has_the_connection_alone():
    shared = cluster(properties={"linger.ms": "9", "fetch.min.bytes": "5", "client.rack": "r"})
    made = admin_properties(shared)
    assert made == {"bootstrap.servers": "a:1,b:2", "client.id": "shop", "client.rack": "r"}
    assert parse_connection(made).client_rack == "r"


def test_a_whole_configuration_from_code():
    config = AppConfig(clusters={"K": cluster()}, consumers={"c": group()})
    assert config.cluster("k") == cluster()
    assert config.consumer("C").topic == "t"
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own bytes


def test_models_are_frozen_and_take_numbers_from_code():
    config = group(retry="r", session_timeout=5, max_in_flight_bytes=7, batch_size=3, lanes=1)
    assert (config.retry_count, config.session_timeout, config.waiting_per_lane) == (1, 5.0, 225)
    assert group(retry="r", retry_count=0).retry_count == 1
    with pytest.raises(ValueError, match="frozen"):
        config.retry_count = 5
    with pytest.raises(ValueError, match="retry_cnt"):
        group(retry_cnt=5)
