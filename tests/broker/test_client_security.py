"""TLS, mTLS and SASL against a real broker: what is let in, what is refused and how it is told, and logins renewed."""

from __future__ import annotations

import base64
import contextlib
import json
import logging
import socket
import ssl
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from broker.produce import new_producer, numbered, produce, send, values_of
from broker.reading import CLOCK, LOOK, Deadline, read_rows
from broker.timers import NEVER_STOPPED
from certificates import self_signed
from multilane import AsyncConsumer, Consumer, Secret, Token, TopicPartition
from multilane.dev.certificates import Authority
from multilane.dev.kafka import KafkaCluster
from multilane.dev.settings import KafkaListener
from multilane.errors import AuthenticationError, MultilaneError, OperationTimeout, SaslError, TlsError
from multilane.metrics.observer import Counts

pytestmark = pytest.mark.broker

USER = "alice"
PASSWORD = "right-canary-5150"
WRONG = "wrong-canary-6260"
LIFETIME = 2.5
SECRETS = (PASSWORD, WRONG, base64.b64encode(PASSWORD.encode()).decode(), "PRIVATE KEY")

Properties = Mapping[str, object]


@dataclass(frozen=True)
class Secured:
    """A broker with good and bad listeners, and what its clients may show it."""

    kafka: KafkaCluster
    topic: str
    clients: Mapping[str, Properties]

    def address(self, listener: str) -> str:
        return self.kafka.bootstrap(listener)

    def tls(self, listener: str) -> dict[str, object]:
        ca = str(self.kafka.certificates.ca)
        return {"bootstrap.servers": self.address(listener), "security.protocol": "SSL", "ssl.ca.location": ca}

    def sasl(self, listener: str, mechanism: str, password: str = PASSWORD) -> dict[str, object]:
        made = self.tls(listener) if listener == "SASL_SSL" else {"bootstrap.servers": self.address(listener)}
        made |= {"security.protocol": listener, "sasl.mechanism": mechanism}
        if mechanism == "OAUTHBEARER":
            return {**made, "sasl.oauthbearer.token.provider": unsigned_token}
        return {**made, "sasl.username": USER, "sasl.password": password}


def unsigned_token() -> Token:
    """What Kafka's validator for development accepts."""
    now = CLOCK.wall()
    parts = ({"alg": "none"}, {"sub": USER, "iat": now, "exp": now + 600})
    words = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return Token(Secret(".".join([*words, ""])), now + 600)


@pytest.fixture(scope="module")
def secured(tmp_path_factory) -> Iterator[Secured]:
    home = tmp_path_factory.mktemp("certificates")
    ours, foreign = Authority(home / "ours"), Authority(home / "foreign", name="somebody else")
    alone = home / "alone.pem"
    alone.write_text(self_signed().both)
    bad = {
        "WRONG_CA": foreign.issue("server").keystore,
        "WRONG_HOST": ours.issue("elsewhere", names=("elsewhere.example",)).keystore,
        "EXPIRED": ours.issue("expired", days=(-30, -1)).keystore,
        "SELF_SIGNED": alone,
    }
    usual = ("PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
    listeners = [*usual, *(KafkaListener(name, "SSL", keystore=path) for name, path in bad.items())]
    properties = {
        "connections.max.reauth.ms": str(int(LIFETIME * 1_000)),
        "listener.name.mtls.ssl.truststore.location": str(ours.path),
        **NEVER_STOPPED,
    }
    pairs = {
        "good": ours.issue("client", names=()),
        "expired": ours.issue("old-client", names=(), days=(-30, -1)),
        "untrusted": foreign.issue("client", names=()),
    }
    clients = {
        name: {"ssl.certificate.location": str(pair.certificate), "ssl.key.location": str(pair.key)}
        for name, pair in pairs.items()
    }
    with KafkaCluster(listeners=listeners, users={USER: PASSWORD}, properties=properties) as kafka:
        # The bad listeners' certificates come from authorities that clients would trust, but for their one fault.
        bundle = kafka.certificates.ca
        bundle.write_bytes(bundle.read_bytes() + ours.path.read_bytes())
        yield Secured(kafka, make_topic(kafka), clients)


def make_topic(kafka: KafkaCluster) -> str:
    from broker.topics import topic_factory

    return topic_factory(kafka)()


# --- who is let in ---------------------------------------------------------------------------------------------------

WAYS_IN: dict[str, Callable[[Secured], Properties]] = {
    "TLS": lambda s: s.tls("SSL"),
    "mTLS": lambda s: s.tls("MTLS") | dict(s.clients["good"]),
    "PLAIN over TLS": lambda s: s.sasl("SASL_SSL", "PLAIN"),
    "PLAIN in the clear, allowed by name": lambda s: s.sasl("SASL_PLAINTEXT", "PLAIN") | {"sasl.allow.insecure": True},
    "SCRAM-SHA-256": lambda s: s.sasl("SASL_PLAINTEXT", "SCRAM-SHA-256"),
    "SCRAM-SHA-256 over TLS": lambda s: s.sasl("SASL_SSL", "SCRAM-SHA-256"),
    "SCRAM-SHA-512": lambda s: s.sasl("SASL_PLAINTEXT", "SCRAM-SHA-512"),
    "SCRAM-SHA-512 over TLS": lambda s: s.sasl("SASL_SSL", "SCRAM-SHA-512"),
    "OAUTHBEARER in the clear, allowed by name": lambda s: (
        s.sasl("SASL_PLAINTEXT", "OAUTHBEARER") | {"sasl.allow.insecure": True}
    ),
    "OAUTHBEARER over TLS": lambda s: s.sasl("SASL_SSL", "OAUTHBEARER"),
}


@pytest.mark.parametrize("way", WAYS_IN)
def test_every_way_in(secured, way, caplog):
    caplog.set_level(logging.DEBUG)
    written = produce(secured.kafka.bootstrap(), secured.topic, numbered(0, 300, size=2_000))
    counts = Counts()
    with Consumer(WAYS_IN[way](secured), observer=counts) as consumer:
        partition = TopicPartition(secured.topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, written[0].offset)
        assert read_rows(consumer, 300) == written
        assert consumer.end_offsets([partition]) == {partition: written[-1].offset + 1}
    assert counts.total("connection.failed") == 0
    assert no_secret_in(caplog.text)


async def test_the_async_consumer_over_mtls(secured):
    properties = WAYS_IN["mTLS"](secured)
    written = produce(secured.kafka.bootstrap(), secured.topic, numbered(0, 10))
    async with AsyncConsumer(properties) as consumer:
        partition = TopicPartition(secured.topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, written[0].offset)
        blocks = await consumer.poll(10.0)
        assert next(blocks.records()).offset == written[0].offset


# --- logins renewed --------------------------------------------------------------------------------------------------


def test_logins_are_renewed_on_live_connections(secured):
    """The broker cuts off whoever has not logged in anew after 2.5 s; over three lifetimes nobody is cut off."""
    ways = ("SCRAM-SHA-256 over TLS", "SCRAM-SHA-512", "PLAIN over TLS", "OAUTHBEARER over TLS")
    partition = TopicPartition(secured.topic, 0)
    producer = new_producer(secured.kafka.bootstrap())
    start = send(producer, secured.topic, numbered(0, 1))[0].offset + 1
    written: list[bytes | None] = []
    with contextlib.ExitStack() as stack:
        readers = []
        for way in ways:
            counts = Counts()
            consumer = stack.enter_context(Consumer(WAYS_IN[way](secured), observer=counts))
            consumer.assign([partition])
            consumer.seek(partition, start)
            readers.append((consumer, counts, []))
        window = Deadline(3.2 * LIFETIME)
        while not window.over:
            written += values_of(send(producer, secured.topic, numbered(len(written), 20)))
            for consumer, _, read in readers:
                read.extend(record.value for record in consumer.poll(LOOK).records())
        for consumer, _, read in readers:
            read.extend(values_of(read_rows(consumer, len(written) - len(read))))
    for (_, counts, read), way in zip(readers, ways, strict=True):
        told = counts.snapshot()
        assert read == written, way
        assert told.get("connection.failed", 0) == 0, way
        assert told["login.renewed"] >= 3, way
        assert told["connection.opened"] <= 3, way  # the bootstrap address, the broker, the consumer's own


# --- who is refused --------------------------------------------------------------------------------------------------


@dataclass
class Refusal:
    """What a refused consumer was told while it was polled for some seconds."""

    properties: Properties
    counts: Counts = field(default_factory=Counts)
    errors: list[MultilaneError] = field(default_factory=list)
    look_up: MultilaneError | None = None


BAD_CERTIFICATES: dict[str, tuple[Callable[[Secured], Properties], str]] = {
    "wrong host name": (lambda s: s.tls("WRONG_HOST"), "its certificate is not for 127.0.0.1"),
    "wrong authority": (lambda s: s.tls("WRONG_CA"), "signed by an authority that is not trusted"),
    "expired": (lambda s: s.tls("EXPIRED"), "its certificate has expired"),
    "self-signed": (lambda s: s.tls("SELF_SIGNED"), "its certificate is self-signed"),
    "plaintext broker": (lambda s: s.tls("PLAINTEXT"), "may not speak TLS"),
    "no client certificate": (lambda s: s.tls("MTLS"), "it requires a client certificate"),
    "untrusted client certificate": (
        lambda s: s.tls("MTLS") | dict(s.clients["untrusted"]),
        "it does not accept our client certificate",
    ),
    "expired client certificate": (
        lambda s: s.tls("MTLS") | dict(s.clients["expired"]),
        "it does not accept our client certificate",
    ),
    "TLS 1.1": (lambda s: s.tls("SSL"), "no TLS version"),  # the address is replaced by that of the old server
}
BAD_LOGINS: dict[str, tuple[Callable[[Secured], Properties], str]] = {
    mechanism: (
        lambda s, m=mechanism: s.sasl("SASL_SSL", m, WRONG),
        f"refused the {mechanism} login: Authentication failed",
    )
    for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
}
WINDOW = 6.0


@pytest.fixture(scope="module")
def old_server(tmp_path_factory) -> Iterator[tuple[str, list[int]]]:
    """A TLS server of another age: its address, and the connections it saw."""
    identity = self_signed()
    file = tmp_path_factory.mktemp("old") / "identity.pem"
    file.write_text(identity.both)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.load_cert_chain(file)
    seen: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server, context, seen))
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", seen
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def serve(server: socket.socket, context: ssl.SSLContext, seen: list[int]) -> None:
    while True:
        try:
            connection, address = server.accept()
        except OSError:
            return
        seen.append(address[1])
        with contextlib.suppress(OSError), connection, context.wrap_socket(connection, server_side=True):
            pass


@pytest.fixture(scope="module")
def refusals(secured, old_server) -> tuple[dict[str, Refusal], str]:
    """All cases at once, polled for some seconds, and everything that was logged meanwhile at DEBUG."""
    cases = {name: Refusal(make(secured)) for name, (make, _) in {**BAD_CERTIFICATES, **BAD_LOGINS}.items()}
    cases["TLS 1.1"].properties = {**cases["TLS 1.1"].properties, "bootstrap.servers": old_server[0]}
    partition = TopicPartition(secured.topic, 0)
    with logged() as lines, contextlib.ExitStack() as stack:
        consumers = {}
        for name, case in cases.items():
            consumers[name] = stack.enter_context(
                Consumer(case.properties, observer=case.counts, auto_offset_reset="earliest")
            )
            consumers[name].assign([partition])
        window = Deadline(WINDOW)
        while not window.over:
            for name, case in cases.items():
                try:
                    assert not consumers[name].poll(LOOK)
                except MultilaneError as error:
                    case.errors.append(error)
        for name, case in cases.items():
            with pytest.raises(MultilaneError) as told:
                consumers[name].end_offsets([partition], timeout=0.5)
            case.look_up = told.value
    return cases, "\n".join(lines)


@contextlib.contextmanager
def logged() -> Iterator[list[str]]:
    lines: list[str] = []
    handler = logging.Handler(logging.DEBUG)
    handler.emit = lambda record: lines.append(handler.format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("multilane")
    level = logger.level
    logger.setLevel(logging.DEBUG)
    logger.addHandler(handler)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


@pytest.mark.parametrize("case", [*BAD_CERTIFICATES, *BAD_LOGINS])
def test_a_refusal_is_one_clear_error(refusals, case):
    refusal = refusals[0][case]
    wanted = {**BAD_CERTIFICATES, **BAD_LOGINS}[case][1]
    address = str(refusal.properties["bootstrap.servers"])
    assert refusal.errors, "poll said nothing"
    for error in refusal.errors:
        assert isinstance(error, TlsError if case in BAD_CERTIFICATES else SaslError)
        assert wanted in str(error)
        assert address in str(error)
    attempts = refusal.counts.total("connection.failed")
    assert len(refusal.errors) <= attempts <= (3 if case != "plaintext broker" else 5), "a storm"


@pytest.mark.parametrize("case", [*BAD_CERTIFICATES, *BAD_LOGINS])
def test_look_ups_say_why(refusals, case):
    told = refusals[0][case].look_up
    assert isinstance(told, AuthenticationError | OperationTimeout)
    assert {**BAD_CERTIFICATES, **BAD_LOGINS}[case][1] in str(told)


def test_an_old_server_sees_few_connections(refusals, old_server):
    assert 1 <= len(old_server[1]) <= 3
    assert refusals[0]["TLS 1.1"].counts.total("connection.failed") <= 3


def test_no_secret_is_reported(refusals):
    cases, log = refusals
    assert log
    assert no_secret_in(log)
    for case in cases.values():
        assert no_secret_in(" ".join(f"{error} {error!r} {error.__cause__}" for error in [*case.errors, case.look_up]))


def no_secret_in(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


def test_a_mechanism_that_the_broker_does_not_know(secured):
    """A listener without SASL is told from one that refuses."""
    properties = secured.sasl("SASL_PLAINTEXT", "SCRAM-SHA-256") | {"bootstrap.servers": secured.address("PLAINTEXT")}
    with Consumer(properties) as consumer, pytest.raises(SaslError, match=r"security\.protocol does not match"):
        consumer.end_offsets([TopicPartition(secured.topic, 0)], timeout=5)


def test_private_keys_stay_private(secured):
    key = Path(str(secured.clients["good"]["ssl.key.location"]))
    certificate = Path(str(secured.clients["good"]["ssl.certificate.location"]))
    with logged() as lines:
        texts = {"ssl.keystore.key": key.read_text(), "ssl.keystore.certificate.chain": certificate.read_text()}
        with Consumer({**secured.tls("MTLS"), **texts, "ssl.keystore.type": "PEM"}) as consumer:
            partition = TopicPartition(secured.topic, 0)
            assert consumer.end_offsets([partition])[partition] >= 0
            shown = repr(consumer._state.config)
    assert no_secret_in(shown)
    assert no_secret_in("\n".join(lines))
