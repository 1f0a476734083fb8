"""Every property of the Java consumer is known, and a default that differs from Java's is a decision listed here."""

from __future__ import annotations

import pytest

from multilane.config.consumer import parse_consumer
from multilane.config.properties import UsedBy
from multilane.config.spelling import PROPERTIES
from multilane.errors import ConfigError

# ConsumerConfig of Kafka 4.3.1: name and default; "-" is null or required.
JAVA = """
allow.auto.create.topics true
auto.commit.interval.ms 5000
auto.offset.reset latest
bootstrap.servers -
check.crcs true
client.dns.lookup use_all_dns_ips
client.id -
client.rack -
config.providers -
connections.max.idle.ms 540000
default.api.timeout.ms 60000
enable.auto.commit true
enable.metrics.push true
exclude.internal.topics true
fetch.max.bytes 52428800
fetch.max.wait.ms 500
fetch.min.bytes 1
group.id -
group.instance.id -
group.protocol classic
group.remote.assignor -
heartbeat.interval.ms 3000
interceptor.classes -
internal.throw.on.fetch.stable.offset.unsupported false
isolation.level read_uncommitted
key.deserializer -
max.partition.fetch.bytes 1048576
max.poll.interval.ms 300000
max.poll.records 500
metadata.max.age.ms 300000
metadata.recovery.rebootstrap.trigger.ms 300000
metadata.recovery.strategy rebootstrap
metric.reporters org.apache.kafka.common.metrics.JmxReporter
metrics.num.samples 2
metrics.recording.level INFO
metrics.sample.window.ms 30000
partition.assignment.strategy range,cooperative-sticky
receive.buffer.bytes 65536
reconnect.backoff.max.ms 1000
reconnect.backoff.ms 50
request.timeout.ms 30000
retry.backoff.max.ms 1000
retry.backoff.ms 100
sasl.client.callback.handler.class -
sasl.jaas.config -
sasl.kerberos.kinit.cmd /usr/bin/kinit
sasl.kerberos.min.time.before.relogin 60000
sasl.kerberos.service.name -
sasl.kerberos.ticket.renew.jitter 0.05
sasl.kerberos.ticket.renew.window.factor 0.8
sasl.login.callback.handler.class -
sasl.login.class -
sasl.login.connect.timeout.ms -
sasl.login.read.timeout.ms -
sasl.login.refresh.buffer.seconds 300
sasl.login.refresh.min.period.seconds 60
sasl.login.refresh.window.factor 0.8
sasl.login.refresh.window.jitter 0.05
sasl.login.retry.backoff.max.ms 10000
sasl.login.retry.backoff.ms 100
sasl.mechanism GSSAPI
sasl.oauthbearer.assertion.algorithm RS256
sasl.oauthbearer.assertion.claim.aud -
sasl.oauthbearer.assertion.claim.exp.seconds 300
sasl.oauthbearer.assertion.claim.iss -
sasl.oauthbearer.assertion.claim.jti.include false
sasl.oauthbearer.assertion.claim.nbf.seconds 60
sasl.oauthbearer.assertion.claim.sub -
sasl.oauthbearer.assertion.file -
sasl.oauthbearer.assertion.private.key.file -
sasl.oauthbearer.assertion.private.key.passphrase -
sasl.oauthbearer.assertion.template.file -
sasl.oauthbearer.client.credentials.client.id -
sasl.oauthbearer.client.credentials.client.secret -
sasl.oauthbearer.clock.skew.seconds 30
sasl.oauthbearer.expected.audience -
sasl.oauthbearer.expected.issuer -
sasl.oauthbearer.header.urlencode false
sasl.oauthbearer.jwks.endpoint.refresh.ms 3600000
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms 10000
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms 100
sasl.oauthbearer.jwks.endpoint.url -
sasl.oauthbearer.jwt.retriever.class -
sasl.oauthbearer.jwt.validator.class -
sasl.oauthbearer.scope -
sasl.oauthbearer.scope.claim.name scope
sasl.oauthbearer.sub.claim.name sub
sasl.oauthbearer.token.endpoint.url -
security.protocol PLAINTEXT
security.providers -
send.buffer.bytes 131072
session.timeout.ms 45000
share.acknowledgement.mode implicit
share.acquire.mode batch_optimized
socket.connection.setup.timeout.max.ms 30000
socket.connection.setup.timeout.ms 10000
ssl.cipher.suites -
ssl.enabled.protocols TLSv1.2,TLSv1.3
ssl.endpoint.identification.algorithm https
ssl.engine.factory.class -
ssl.key.password -
ssl.keymanager.algorithm SunX509
ssl.keystore.certificate.chain -
ssl.keystore.key -
ssl.keystore.location -
ssl.keystore.password -
ssl.keystore.type JKS
ssl.protocol TLSv1.3
ssl.provider -
ssl.secure.random.implementation -
ssl.trustmanager.algorithm PKIX
ssl.truststore.certificates -
ssl.truststore.location -
ssl.truststore.password -
ssl.truststore.type JKS
value.deserializer -
"""
JAVA_DEFAULTS = dict(line.split(" ", 1) for line in JAVA.split("\n") if line)

OTHER_DEFAULTS = {
    "allow.auto.create.topics": "false",
    "auto.offset.reset": "none",
    "client.id": "multilane",
    "group.protocol": "auto",
    "max.partition.fetch.bytes": "4194304",
    "max.poll.records": "2147483647",
    "receive.buffer.bytes": "-1",
    "send.buffer.bytes": "-1",
    "sasl.mechanism": "-",
    "ssl.keystore.type": "-",
    "ssl.truststore.type": "-",
}


def shown(default: object) -> str:
    if isinstance(default, tuple):
        return ",".join(default) or "-"
    if isinstance(default, bool):
        return str(default).lower()
    return "-" if default in (None, "") else str(default)


@pytest.mark.parametrize("name", JAVA_DEFAULTS)
def test_is_known_with_javas_default(name: str) -> None:
    row = PROPERTIES[name]
    assert row.doc
    if not row.refused and not row.no_effect:
        assert shown(row.default) == OTHER_DEFAULTS.get(name, JAVA_DEFAULTS[name])


@pytest.mark.parametrize("name", [row.name for row in PROPERTIES.values() if row.refused])
def test_refused_with_its_reason(name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_consumer({"bootstrap.servers": "a:1", name: "canary"})
    assert str(caught.value) == f"{name} is not accepted: {PROPERTIES[name].refused}"


@pytest.mark.parametrize("name", [row.name for row in PROPERTIES.values() if row.refused])
def test_javas_empty_default_of_a_refused_property_passes(name: str) -> None:
    plain = {"bootstrap.servers": "a:1"}
    assert parse_consumer({**plain, name: ""}) == parse_consumer({**plain, name: None}) == parse_consumer(plain)


@pytest.mark.parametrize("name", [row.name for row in PROPERTIES.values() if row.no_effect])
def test_a_property_without_effect_gets_a_warning(name: str) -> None:
    config = parse_consumer({"bootstrap.servers": "a:1", name: "1"})
    assert config.warnings == (f"{name} has no effect: {PROPERTIES[name].no_effect}",)


def test_every_row_is_accepted_explained_or_refused_and_not_two_of_them() -> None:
    for row in PROPERTIES.values():
        assert not (row.refused and row.no_effect), row.name
        assert row.used_by is not UsedBy.PRODUCER or row.refused
        assert row.name == row.name.lower()
        assert "_" not in row.name
        assert "-" not in row.name


def test_deserializers_are_refused_because_blocks_carry_bytes() -> None:
    with pytest.raises(ConfigError, match="blocks carry bytes"):
        parse_consumer({"bootstrap.servers": "a:1", "key.deserializer": "StringDeserializer"})
