"""The properties of TLS and SASL.

Thread: none (a constant).

The names are Java's, librdkafka's where Java has none (a CA file, user name and password), and three of our own.
"""

from __future__ import annotations

from typing import Final

from multilane.config.properties import Property, PropertyKind

MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_PLATFORM_TLS = "Python's ssl module chooses the provider, the random source and the certificate algorithms"
_RELOGIN = "the client calls sasl.oauthbearer.token.provider again before a token expires"

SECURITY_PROPERTIES: Final[tuple[Property, ...]] = (
    Property(
        name="security.protocol",
        kind=PropertyKind.CHOICE,
        default="PLAINTEXT",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        doc="Whether the connection uses encryption (SSL) and authentication (SASL).",
    ),
    Property(
        name="sasl.mechanism",
        kind=PropertyKind.CHOICE,
        choices=MECHANISMS,
        aliases=("sasl.mechanisms",),
        doc="The login mechanism. There is no default: Java's, GSSAPI (Kerberos), is not supported.",
    ),
    Property(name="sasl.username", kind=PropertyKind.TEXT, doc="The user name for PLAIN and SCRAM."),
    Property(name="sasl.password", kind=PropertyKind.SECRET, doc="The password for PLAIN and SCRAM."),
    Property(
        name="sasl.jaas.config",
        kind=PropertyKind.SECRET,
        doc="Java's notation for user name and password: <PlainLoginModule|ScramLoginModule> required username=... "
        "password=...; parsed as text, no class is loaded.",
    ),
    Property(
        name="sasl.allow.insecure",
        kind=PropertyKind.FLAG,
        default=False,
        aliases=("sasl.plain.allow.insecure",),
        doc="Allows PLAIN and OAUTHBEARER without TLS, which exposes the password or token to the network.",
    ),
    Property(
        name="sasl.oauthbearer.token.provider",
        kind=PropertyKind.FUNCTION,
        doc="A function without arguments that returns a Token; called off the network thread.",
    ),
    Property(
        name="sasl.oauthbearer.extensions",
        kind=PropertyKind.LIST,
        default=(),
        doc="name=value pairs sent with every token (for example logicalCluster=lkc-1).",
    ),
    Property(
        name="ssl.endpoint.identification.algorithm",
        kind=PropertyKind.CHOICE,
        default="https",
        choices=("https", "", "none"),
        doc="https verifies that the certificate belongs to the host; empty turns that off.",
    ),
    Property(
        name="ssl.ca.location",
        kind=PropertyKind.TEXT,
        doc="A PEM file (or a c_rehash directory) with the authorities to trust (default: the system's).",
    ),
    Property(
        name="ssl.truststore.certificates",
        kind=PropertyKind.SECRET,
        aliases=("ssl.ca.pem", "ssl.trust.store.certificates"),
        doc="The authorities to trust, as PEM text.",
    ),
    Property(
        name="ssl.truststore.location",
        kind=PropertyKind.TEXT,
        aliases=("ssl.trust.store.location",),
        doc="A PEM file with the authorities to trust; needs ssl.truststore.type=PEM.",
    ),
    Property(
        name="ssl.truststore.type",
        kind=PropertyKind.TEXT,
        aliases=("ssl.trust.store.type",),
        doc="PEM; Java's JKS and PKCS12 are not supported.",
    ),
    Property(
        name="ssl.truststore.password",
        kind=PropertyKind.SECRET,
        aliases=("ssl.trust.store.password",),
        doc="The password of a Java truststore.",
        refused="a PEM truststore has no password; remove it",
    ),
    Property(
        name="ssl.certificate.location",
        kind=PropertyKind.TEXT,
        doc="A PEM file with our certificate and its chain (mTLS).",
    ),
    Property(name="ssl.key.location", kind=PropertyKind.TEXT, doc="A PEM file with our private key (mTLS)."),
    Property(
        name="ssl.key.password",
        kind=PropertyKind.SECRET,
        doc="The password of our private key, if the key is encrypted.",
    ),
    Property(
        name="ssl.keystore.certificate.chain",
        kind=PropertyKind.SECRET,
        aliases=("ssl.certificate.pem", "ssl.key.store.certificate.chain"),
        doc="Our certificate and its chain, as PEM text.",
    ),
    Property(
        name="ssl.keystore.key",
        kind=PropertyKind.SECRET,
        aliases=("ssl.key.pem", "ssl.key.store.key"),
        doc="Our private key, as PEM text.",
    ),
    Property(
        name="ssl.keystore.location",
        kind=PropertyKind.TEXT,
        aliases=("ssl.key.store.location",),
        doc="A PEM file with our private key and certificate chain; needs ssl.keystore.type=PEM.",
    ),
    Property(
        name="ssl.keystore.type",
        kind=PropertyKind.TEXT,
        aliases=("ssl.key.store.type",),
        doc="PEM; Java's JKS and PKCS12 are not supported.",
    ),
    Property(
        name="ssl.keystore.password",
        kind=PropertyKind.SECRET,
        aliases=("ssl.key.store.password",),
        doc="The password of a Java keystore.",
        refused="a PEM keystore has no password of its own; set the key's password with ssl.key.password",
    ),
    Property(
        name="ssl.enabled.protocols",
        kind=PropertyKind.LIST,
        default=("TLSv1.2", "TLSv1.3"),
        doc="TLS versions to offer: TLSv1.2, TLSv1.3 or both; older ones are refused.",
    ),
    Property(
        name="ssl.protocol",
        kind=PropertyKind.TEXT,
        doc="The version Java prefers.",
        no_effect="the client uses the highest version of ssl.enabled.protocols that the broker supports",
    ),
    Property(name="ssl.provider", kind=PropertyKind.TEXT, doc="Java's TLS provider.", no_effect=_PLATFORM_TLS),
    Property(
        name="ssl.keymanager.algorithm", kind=PropertyKind.TEXT, doc="Java's key manager.", no_effect=_PLATFORM_TLS
    ),
    Property(
        name="ssl.trustmanager.algorithm", kind=PropertyKind.TEXT, doc="Java's trust manager.", no_effect=_PLATFORM_TLS
    ),
    Property(
        name="ssl.secure.random.implementation",
        kind=PropertyKind.TEXT,
        doc="Java's random source.",
        no_effect=_PLATFORM_TLS,
    ),
    Property(name="sasl.login.refresh.window.factor", kind=PropertyKind.TEXT, doc="Re-login.", no_effect=_RELOGIN),
    Property(name="sasl.login.refresh.window.jitter", kind=PropertyKind.TEXT, doc="Re-login.", no_effect=_RELOGIN),
    Property(name="sasl.login.refresh.min.period.seconds", kind=PropertyKind.TEXT, doc="Re-login.", no_effect=_RELOGIN),
    Property(name="sasl.login.refresh.buffer.seconds", kind=PropertyKind.TEXT, doc="Re-login.", no_effect=_RELOGIN),
)
