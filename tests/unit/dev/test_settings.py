"""Broker configurations: addresses, timers, listeners, and whose word wins."""

from __future__ import annotations

from pathlib import Path

import pytest

from multilane.dev import settings
from multilane.dev.kafka import KafkaCluster
from multilane.dev.settings import BrokerSpec, KafkaListener, TlsFiles
from multilane.errors import DevKafkaError
from multilane.secret import Secret

TLS = TlsFiles(Path("/tls/server-keystore.pem"), Path("/tls/ca.pem"))


def spec(*names, nodes=1, users=None, tls=TLS):
    listeners = settings.listeners_of(names)
    columns = [*(item.name for item in listeners), settings.CONTROLLER]
    ports = {
        node: {name: 9000 + 10 * index + node for index, name in enumerate(columns)} for node in range(1, nodes + 1)
    }
    return BrokerSpec(1, Path("/data"), listeners, ports, users or {}, tls)


def made(*names, profile="test", properties=None, **rest):
    return settings.broker_properties(spec(*names, **rest), profile, properties or {})


def test_addresses_are_loopback_only():
    got = made("SSL", nodes=3)
    assert got["listeners"] == "PLAINTEXT://127.0.0.1:9001,SSL://127.0.0.1:9011,CONTROLLER://127.0.0.1:9021"
    assert got["controller.quorum.voters"] == "1@127.0.0.1:9021,2@127.0.0.1:9022,3@127.0.0.1:9023"
    assert got["listener.security.protocol.map"] == "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
    assert got["inter.broker.listener.name"] == "PLAINTEXT"


@pytest.mark.parametrize(("nodes", "factor", "in_sync"), [(1, "1", "1"), (3, "3", "2")])
def test_internal_topics_fit_the_cluster(nodes, factor, in_sync):
    got = made(nodes=nodes)
    assert got["offsets.topic.replication.factor"] == factor
    assert got["transaction.state.log.replication.factor"] == factor
    assert got["transaction.state.log.min.isr"] == in_sync


def test_the_users_word_wins_over_the_profile():
    assert made()["broker.session.timeout.ms"] == "3000"
    assert made(properties={"broker.session.timeout.ms": "9000"})["broker.session.timeout.ms"] == "9000"


def test_the_stock_profile_sets_no_timers():
    assert not settings.PROFILES["test"].keys() & made(profile="stock").keys()


def test_tls_is_set_per_listener():
    own = KafkaListener("EXPIRED", "SSL", keystore=Path("/expired.pem"))
    got = made("SSL", "MTLS", own)
    assert got["listener.name.ssl.ssl.client.auth"] == "none"
    assert got["listener.name.mtls.ssl.client.auth"] == "required"
    assert got["listener.name.ssl.ssl.keystore.location"] == str(TLS.keystore)
    assert got["listener.name.expired.ssl.keystore.location"] == "/expired.pem"


def test_passwords_are_quoted_for_jaas():
    got = made("SASL_SSL", users={"bob": Secret('a"b\\c')})
    assert 'user_bob="a\\"b\\\\c";' in got["listener.name.sasl_ssl.plain.sasl.jaas.config"]


def test_rendered_as_java_reads_it():
    assert settings.render({"a": "b\\c", "d": "e\nf"}) == "a=b\\\\c\nd=e\\nf\n"


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: made("TELNET"), "unknown listener 'TELNET'"),
        (lambda: made(KafkaListener("SSL", "SSL", client_auth=True), "SSL"), "two listeners have the name SSL"),
        (lambda: made("SSL", tls=None), "needs certificates"),
        (lambda: made(profile="prod"), "unknown profile 'prod'"),
        (lambda: KafkaCluster(nodes=2), "1 or 3 nodes, not 2"),
        (lambda: KafkaCluster().bootstrap("SSL"), "no listener 'SSL'"),
        (lambda: KafkaCluster().kill(1), "no node 1"),
        (lambda: KafkaCluster().tool("X"), "was not started"),
        (lambda: KafkaCluster().certificates, "no TLS listener"),
    ],
)
def test_mistakes_are_named(build, said):
    with pytest.raises(DevKafkaError, match=said):
        build()


def test_a_clusters_repr_shows_no_password():
    assert "hunter2" not in repr(KafkaCluster(users={"a": "hunter2"}))
