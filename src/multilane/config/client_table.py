"""The properties of a connection that are not about security.

Thread: none (a constant).

Defaults are Java's unless the row says why not.
"""

from __future__ import annotations

from typing import Final

from multilane.config.properties import INT_MAX, LONG_MAX, Property, PropertyKind

_METRICS = "multilane reports through its own observer, not through Java metrics reporters"

CLIENT_PROPERTIES: Final[tuple[Property, ...]] = (
    Property(
        name="bootstrap.servers",
        kind=PropertyKind.LIST,
        doc="Brokers to ask first, host:port each; an IPv6 address stands in brackets.",
        aliases=("metadata.broker.list", "brokers"),
    ),
    Property(
        name="client.id",
        kind=PropertyKind.TEXT,
        default="multilane",
        doc="The name brokers see in their logs and quotas.",
    ),
    Property(
        name="client.rack",
        kind=PropertyKind.TEXT,
        default="",
        doc="The rack of this machine; a replica in the same rack is read when brokers offer it.",
    ),
    Property(
        name="client.dns.lookup",
        kind=PropertyKind.CHOICE,
        default="use_all_dns_ips",
        choices=("use_all_dns_ips",),
        doc="Every address of a host name is tried in turn; other modes exist only for Kerberos.",
    ),
    Property(
        name="request.timeout.ms",
        kind=PropertyKind.MILLIS,
        default=30_000,
        minimum=1,
        maximum=INT_MAX,
        aliases=("socket.timeout.ms",),
        doc="How long one request may wait for its answer before the connection is given up.",
    ),
    Property(
        name="default.api.timeout.ms",
        kind=PropertyKind.MILLIS,
        default=60_000,
        minimum=1,
        maximum=INT_MAX,
        doc="The deadline of calls that were given none.",
    ),
    Property(
        name="socket.connection.setup.timeout.ms",
        kind=PropertyKind.MILLIS,
        default=10_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="How long the first attempt to connect (TCP, TLS, SASL) may take.",
    ),
    Property(
        name="socket.connection.setup.timeout.max.ms",
        kind=PropertyKind.MILLIS,
        default=30_000,
        minimum=1,
        maximum=LONG_MAX,
        doc="The limit to which the time for connecting grows with each failure.",
    ),
    Property(
        name="reconnect.backoff.ms",
        kind=PropertyKind.MILLIS,
        default=50,
        minimum=0,
        maximum=LONG_MAX,
        doc="The wait before the first reconnect to a broker.",
    ),
    Property(
        name="reconnect.backoff.max.ms",
        kind=PropertyKind.MILLIS,
        default=1_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="The limit to which that wait grows with each failure.",
    ),
    Property(
        name="retry.backoff.ms",
        kind=PropertyKind.MILLIS,
        default=100,
        minimum=0,
        maximum=LONG_MAX,
        doc="The wait before a request that failed is sent again.",
    ),
    Property(
        name="retry.backoff.max.ms",
        kind=PropertyKind.MILLIS,
        default=1_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="The limit to which that wait grows with each failure.",
    ),
    Property(
        name="metadata.max.age.ms",
        kind=PropertyKind.MILLIS,
        default=300_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="The picture of the cluster is renewed at least this often.",
    ),
    Property(
        name="metadata.recovery.strategy",
        kind=PropertyKind.CHOICE,
        default="rebootstrap",
        choices=("rebootstrap", "none"),
        doc="What to do when no known broker answers: start again from bootstrap.servers, or go on trying.",
    ),
    Property(
        name="metadata.recovery.rebootstrap.trigger.ms",
        kind=PropertyKind.MILLIS,
        default=300_000,
        minimum=0,
        maximum=LONG_MAX,
        doc="How long metadata may be out of reach before the start from bootstrap.servers.",
    ),
    Property(
        name="connections.max.idle.ms",
        kind=PropertyKind.MILLIS,
        default=540_000,
        minimum=-1,
        maximum=LONG_MAX,
        doc="A connection without traffic is closed after this time; -1 keeps it.",
    ),
    Property(
        name="receive.message.max.bytes",
        kind=PropertyKind.BYTES,
        default=100_000_000,
        minimum=1_000,
        maximum=INT_MAX,
        doc="The largest response frame accepted; a longer one closes the connection before any byte is allocated.",
    ),
    Property(
        name="receive.buffer.bytes",
        kind=PropertyKind.BYTES,
        default=-1,
        minimum=-1,
        maximum=INT_MAX,
        aliases=("socket.receive.buffer.bytes",),
        doc="SO_RCVBUF. -1 (Java: 64 KB) leaves it to the kernel, whose own tuning is faster.",
    ),
    Property(
        name="send.buffer.bytes",
        kind=PropertyKind.BYTES,
        default=-1,
        minimum=-1,
        maximum=INT_MAX,
        aliases=("socket.send.buffer.bytes",),
        doc="SO_SNDBUF. -1 (Java: 128 KB) leaves it to the kernel.",
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
