"""The security of a connection: the settings of TLS and SASL.

Thread: none (pure values).

Owns the security dataclasses and their parsing. Reads no file: a path stays a path until the TLS context is created.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, cast

from multilane.config.jaas import JaasLogin, parse_jaas
from multilane.config.spelling import PROPERTIES
from multilane.config.tls import TlsConfig, parse_tls
from multilane.config.values import Values
from multilane.errors import ConfigError
from multilane.secret import Secret


class SecurityProtocol(Enum):
    """Kafka's four security protocols."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def tls(self) -> bool:
        return self.value.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.value.startswith("SASL_")


@dataclass(frozen=True, slots=True)
class Token:
    """A bearer token. `expires_at` is in seconds since the epoch; `extensions` go to the broker with it."""

    value: Secret
    expires_at: float
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


TokenProvider = Callable[[], Token]


@dataclass(frozen=True, slots=True)
class PasswordLogin:
    """PLAIN or SCRAM."""

    mechanism: str
    username: str
    password: Secret


@dataclass(frozen=True, slots=True)
class TokenLogin:
    """OAUTHBEARER. The repr omits the function, which may hold credentials."""

    provider: TokenProvider = field(repr=False)
    extensions: tuple[tuple[str, str], ...] = ()
    mechanism: str = "OAUTHBEARER"


SaslLogin = PasswordLogin | TokenLogin


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """`tls` is set if and only if the protocol encrypts, `sasl` if and only if it authenticates."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    tls: TlsConfig | None = None
    sasl: SaslLogin | None = None


# Mechanisms that send the secret itself to the broker: the secret, and what to use instead of sending it unencrypted.
_SENDS_SECRET: Final = {"PLAIN": ("password", "SASL_SSL or a SCRAM mechanism"), "OAUTHBEARER": ("token", "SASL_SSL")}
_NO_LOGIN: Final = "set sasl.username and sasl.password (or sasl.jaas.config)"


def parse_security(values: Values) -> tuple[SecurityConfig, tuple[str, ...]]:
    """The requested protection, and warnings about settings that weaken it or are not used."""
    protocol = SecurityProtocol(values.text("security.protocol"))
    warnings = list(_unused(values, protocol))
    tls = None
    if protocol.tls:
        tls = parse_tls(values)
        if not tls.verify_hostname:
            key = values.spelled("ssl.endpoint.identification.algorithm")
            warnings.append(f"{key} is empty: host names in the brokers' certificates are not verified")
    sasl = _login(values) if protocol.sasl else None
    if sasl is not None and sasl.mechanism in _SENDS_SECRET and not protocol.tls:
        warnings.append(_allow_insecure(values, sasl.mechanism))
    return SecurityConfig(protocol, tls, sasl), tuple(warnings)


def _unused(values: Values, protocol: SecurityProtocol) -> list[str]:
    """Credentials that would not be used. By default this is an error: a user who sets a password wants to log in."""
    groups = (("sasl.", protocol.sasl, "SASL_SSL"), ("ssl.", protocol.tls, "SSL or SASL_SSL"))
    warnings = []
    for prefix, used, wanted in groups:
        idle = [key for name, key in values.given.items() if name.startswith(prefix) and _matters(values, name)]
        if used or not idle:
            continue
        text = f"{', '.join(idle)}: set, but security.protocol is {protocol.value}"
        if "security.protocol" not in values.given:
            raise ConfigError(f"{text} (the default); set it to {wanted}")
        warnings.append(f"{text}, so it is not used")
    return warnings


def _matters(values: Values, name: str) -> bool:
    return not PROPERTIES[name].no_effect and values.parsed.get(name) not in (None, "", (), Secret(""))


def _allow_insecure(values: Values, mechanism: str) -> str:
    secret, instead = _SENDS_SECRET[mechanism]
    if not values.flag("sasl.allow.insecure"):
        raise ConfigError(
            f"sasl.mechanism {mechanism} over SASL_PLAINTEXT sends the {secret} unencrypted; use {instead}, "
            "or set sasl.allow.insecure=true if you trust the whole network"
        )
    return f"{values.spelled('sasl.allow.insecure')} is set: the {secret} is sent unencrypted"


def _login(values: Values) -> SaslLogin:
    mechanism = values.text("sasl.mechanism")
    if not mechanism:
        raise ConfigError(
            "sasl.mechanism is not set (Java's default, GSSAPI, is not supported); write PLAIN, SCRAM-SHA-256, "
            "SCRAM-SHA-512 or OAUTHBEARER"
        )
    return _token_login(values) if mechanism == "OAUTHBEARER" else _password_login(values, mechanism)


def _token_login(values: Values) -> TokenLogin:
    key = values.spelled("sasl.oauthbearer.token.provider")
    provider = values.parsed["sasl.oauthbearer.token.provider"]
    if provider is None:
        raise ConfigError(
            "sasl.mechanism OAUTHBEARER needs sasl.oauthbearer.token.provider, a function that returns a Token"
        )
    if not isinstance(provider, Hashable):
        raise ConfigError(f"{key}: the function object must be hashable; it decides which connections are shared")
    for other in ("sasl.username", "sasl.password", "sasl.jaas.config"):
        if other in values.given:
            raise ConfigError(f"{values.spelled(other)} does not apply to sasl.mechanism OAUTHBEARER; remove it")
    return TokenLogin(cast("TokenProvider", provider), _extensions(values))


def _extensions(values: Values) -> tuple[tuple[str, str], ...]:
    key = values.spelled("sasl.oauthbearer.extensions")
    pairs = []
    for entry in values.items("sasl.oauthbearer.extensions"):
        name, equals, value = entry.partition("=")
        if not name or not equals:
            raise ConfigError(f"{key}: write every extension as name=value")
        pairs.append((name.strip(), value.strip()))
    if len({name for name, _ in pairs}) != len(pairs):
        raise ConfigError(f"{key}: an extension is given twice")
    return tuple(sorted(pairs))


def _password_login(values: Values, mechanism: str) -> PasswordLogin:
    username, password = values.text("sasl.username"), values.secret("sasl.password")
    jaas = values.secret("sasl.jaas.config")
    if jaas is not None:
        login = _jaas_login(values, jaas, mechanism)
        if (username and username != login.username) or (password is not None and password != login.password):
            raise ConfigError("sasl.jaas.config and sasl.username/sasl.password differ; keep one of them")
        username, password = login.username, login.password
    if not username or password is None or not password.reveal():
        raise ConfigError(f"sasl.mechanism {mechanism} needs a user name and a password: {_NO_LOGIN}")
    return PasswordLogin(mechanism, username, password)


def _jaas_login(values: Values, jaas: Secret, mechanism: str) -> JaasLogin:
    key = values.spelled("sasl.jaas.config")
    login = parse_jaas(key, jaas)
    if login.family != mechanism.partition("-")[0]:
        raise ConfigError(f"{key}: its login module is for {login.family}, but sasl.mechanism is {mechanism}")
    return login
