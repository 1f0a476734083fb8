"""Known properties that are not accepted, each with the reason for the user.

Thread: none (a constant).

A property without effect is a trap: the user who sets it relies on it. Properties that only tune Java's internals are
accepted with a warning in the other tables; those that promise a behaviour are refused here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from multilane.config.properties import Property, PropertyKind, UsedBy

_BYTES = "blocks carry bytes; decode keys and values in your own code"
_KERBEROS = "Kerberos (GSSAPI) is not supported; use SCRAM, OAUTHBEARER or mTLS"
_CLASSES = "it names Java classes, which cannot run here"
_TOKEN = "tokens come from the function in sasl.oauthbearer.token.provider"  # noqa: S105 - a sentence
_SHARE = "share groups are not supported"
_BROKER = "it configures brokers, not clients"

_REASONS: Final[dict[str, tuple[str, ...]]] = {
    _BYTES: ("key.deserializer", "value.deserializer"),
    _KERBEROS: (
        "sasl.kerberos.service.name",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.principal",
        "sasl.kerberos.keytab",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
    ),
    _CLASSES: (
        "interceptor.classes",
        "config.providers",
        "security.providers",
        "ssl.engine.factory.class",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.jwt.validator.class",
    ),
    _TOKEN: (
        "sasl.login.connect.timeout.ms",
        "sasl.login.read.timeout.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.login.retry.backoff.max.ms",
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.assertion.algorithm",
        "sasl.oauthbearer.assertion.claim.aud",
        "sasl.oauthbearer.assertion.claim.exp.seconds",
        "sasl.oauthbearer.assertion.claim.iss",
        "sasl.oauthbearer.assertion.claim.jti.include",
        "sasl.oauthbearer.assertion.claim.nbf.seconds",
        "sasl.oauthbearer.assertion.claim.sub",
        "sasl.oauthbearer.assertion.file",
        "sasl.oauthbearer.assertion.private.key.file",
        "sasl.oauthbearer.assertion.private.key.passphrase",
        "sasl.oauthbearer.assertion.template.file",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "oauth.cb",
    ),
    _BROKER: (
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.iat.validation.enabled",
        "sasl.oauthbearer.jti.validation.enabled",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    ),
    _SHARE: ("share.acknowledgement.mode", "share.acquire.mode"),
    "the machine's OpenSSL policy sets the ciphers; restrict with ssl.enabled.protocols": ("ssl.cipher.suites",),
    "certificates are always verified; set your authority with ssl.ca.location": (
        "enable.ssl.certificate.verification",
    ),
    "it is internal to Java": ("internal.throw.on.fetch.stable.offset.unsupported",),
    "blocks have the next offset and the high watermark; compare them": ("enable.partition.eof",),
    "commit the offsets that you have finished instead": ("enable.auto.offset.store",),
    "prefetching is limited in bytes: fetch.buffer.bytes": ("queued.min.messages",),
    "it controls librdkafka's own logging; this client uses Python's logging": ("debug", "log.level"),
}

_PRODUCER: Final = (
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "key.serializer",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "partitioner.class",
    "retries",
    "transaction.timeout.ms",
    "transactional.id",
    "value.serializer",
)


def _rows() -> Iterator[Property]:
    for reason, names in _REASONS.items():
        for name in names:
            yield Property(name=name, kind=PropertyKind.TEXT, doc="Not accepted.", refused=reason)
    for name in _PRODUCER:
        yield Property(
            name=name,
            kind=PropertyKind.TEXT,
            doc="A producer property.",
            used_by=UsedBy.PRODUCER,
            refused="it is a producer property",
        )


REFUSED_PROPERTIES: Final[tuple[Property, ...]] = tuple(_rows())
