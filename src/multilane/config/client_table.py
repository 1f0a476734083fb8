"""The properties of a connection that are not about security.

Thread: none (a constant).

Defaults are Java's unless a row gives a reason for another.
"""

from __future__ import annotations

from typing import Final

from multilane.config.properties import INT_MAX, LONG_MAX, Property, PropertyKind

_METRICS = "multilane reports through its own observer, not through Java metrics reporters"

CLIENT_PROPERTIES: Final[tuple[Property, ...]] = (
    Property(
        name="bootstrap.servers",
        kind=PropertyKind.LIST,
        doc="Brokers to contact first, host:port each; an IPv6 address needs brackets.",
        aliases=("metadata.broker.list", "brokers"),
    ),
    Property(
        name="client.id",
        kind=PropertyKind.TEXT,
        default="multilane",
        doc="The name that brokers use in their logs and quotas.",
    ),
    Property(
        name="client.rack",
        kind=PropertyKind.TEXT,
        default="",
        doc="The rack of this machine; the consumer reads from a replica in the same rack if brokers offer one.",
    ),
    Property(
        name="client.dns.lookup",
        kind=PropertyKind.CHOICE,
        default="use_all_dns_ips",
        choices=("use_all_dns_ips",),
        doc="Tries every address of a host name in turn; other modes exist only for Kerberos.",
    ),
    Property(
        name="request.timeout.ms",
        kind=PropertyKind.MILLIS,
        default=30_000,
        minimum=1,
        maximum=INT_MAX,
        aliases=("socket.timeout.ms",),
        doc="How long one request may wait for its response before the connection is closed.",
    ),
    Property(
        name="default.api.timeout.ms",
        kind=PropertyKind.MILLIS,
        default=60_000,
        minimum=1,
        maximum=INT_MAX,
        doc="The default timeout of API calls.",
    ),
    Property(
        name="socket.connection.setup.timeout.ms",
        kind=PropertyKind.MILLIS,
        default=10_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="How long the first connection attempt (TCP, TLS, SASL) may take.",
    ),
    Property(
        name="socket.connection.setup.timeout.max.ms",
        kind=PropertyKind.MILLIS,
        default=30_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="The maximum of the connection timeout, which grows with each failure.",
    ),
    Property(
        name="reconnect.backoff.ms",
        kind=PropertyKind.MILLIS,
        default=50,
        minimum=0,
        maximum=LONG_MAX,
        doc="The delay before the first reconnect to a broker.",
    ),
    Property(
        name="reconnect.backoff.max.ms",
        kind=PropertyKind.MILLIS,
        default=1_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="The maximum of that delay, which grows with each failure.",
    ),
    Property(
        name="retry.backoff.ms",
        kind=PropertyKind.MILLIS,
        default=100,
        minimum=0,
        maximum=LONG_MAX,
        doc="The delay before a failed request is retried.",
    ),
    Property(
        name="retry.backoff.max.ms",
        kind=PropertyKind.MILLIS,
        default=1_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="The maximum of that delay, which grows with each failure.",
    ),
    Property(
        name="metadata.max.age.ms",
        kind=PropertyKind.MILLIS,
        default=300_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="Metadata is refreshed at least this often.",
    ),
    Property(
        name="metadata.recovery.strategy",
        kind=PropertyKind.CHOICE,
        default="rebootstrap",
        choices=("rebootstrap", "none"),
        doc="What to do when no known broker responds: start again from bootstrap.servers, or keep trying.",
    ),
    Property(
        name="metadata.recovery.rebootstrap.trigger.ms",
        kind=PropertyKind.MILLIS,
        default=300_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="How long metadata may be unavailable before the client starts again from bootstrap.servers.",
    ),
    Property(
        name="connections.max.idle.ms",
        kind=PropertyKind.MILLIS,
        default=540_000,
        minimum=-1,
        maximum=LONG_MAX,
        doc="An idle connection is closed after this time; -1 keeps it open.",
    ),
    Property(
        name="receive.message.max.bytes",
        kind=PropertyKind.BYTES,
        default=100_000_000,
        minimum=1_000,
        maximum=INT_MAX,
        doc="The largest accepted response frame; a longer one closes the connection before memory is allocated.",
    ),
    Property(
        name="receive.buffer.bytes",
        kind=PropertyKind.BYTES,
        default=-1,
        minimum=-1,
        maximum=INT_MAX,
        aliases=("socket.receive.buffer.bytes",),
        doc="SO_RCVBUF. -1 leaves it to the kernel, whose own tuning is faster. Java's default is 64 KB.",
    ),
    Property(
        name="send.buffer.bytes",
        kind=PropertyKind.BYTES,
        default=-1,
        minimum=-1,
        maximum=INT_MAX,
        aliases=("socket.send.buffer.bytes",),
        doc="SO_SNDBUF. -1 leaves it to the kernel. Java's default is 128 KB.",
    ),
    Property(
        name="metric.reporters", kind=PropertyKind.LIST, doc="Java classes that report metrics.", no_effect=_METRICS
    ),
    Property(
        name="metrics.num.samples", kind=PropertyKind.INTEGER, doc="Samples of a Java metric.", no_effect=_METRICS
    ),
    Property(name="metrics.sample.window.ms", kind=PropertyKind.MILLIS, doc="Window of a sample.", no_effect=_METRICS),
    Property(name="metrics.recording.level", kind=PropertyKind.TEXT, doc="Detail of Java metrics.", no_effect=_METRICS),
    Property(
        name="auto.include.jmx.reporter", kind=PropertyKind.FLAG, doc="JMX in Kafka before 4.0.", no_effect=_METRICS
    ),
    Property(
        name="enable.metrics.push",
        kind=PropertyKind.FLAG,
        doc="Whether Java pushes its metrics to the brokers (KIP-714).",
        no_effect="this client pushes no metrics to the brokers",
    ),
)
