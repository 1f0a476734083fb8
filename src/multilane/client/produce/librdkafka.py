"""The only interface to librdkafka: translates configuration, errors and log lines.

Thread: any (pure, except the log and the token function, which run on the thread that polls a client).

Secrets are revealed only here on the way to librdkafka. Its texts are masked before they are logged or raised. Never
imports confluent-kafka at import time.
"""

from __future__ import annotations

import ctypes
import os
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import WeakSet

from multilane.clock import SystemClock
from multilane.config.security import PasswordLogin, SecurityConfig, Token, TokenLogin
from multilane.config.tls import Pem, PemFile, TlsConfig
from multilane.errors import (
    ClientClosed,
    ClientFailed,
    ConfigError,
    LibrdkafkaError,
    MultilaneError,
    NetworkError,
    OperationTimeout,
    SaslError,
    TlsError,
    broker_error,
    printable,
)
from multilane.logs import logger
from multilane.rate_limit import RateLimit
from multilane.secret import MASK, Secret

if TYPE_CHECKING:
    from multilane.config.connection import ConnectionConfig

log = logger(__name__)

T = TypeVar("T")
LibrdkafkaToken = tuple[str, float, str, dict[str, str]]

_BOTH_VERSIONS: Final = frozenset({"TLSv1.2", "TLSv1.3"})
_LARGEST_INT32: Final = (1 << 31) - 1
_LOG_EVERY: Final = 30.0  # seconds
_MOST_KINDS: Final = 100
_NUMBERS: Final = re.compile(r"\d+")
# The handle and the librdkafka thread that wrote a line.
_PREFIX: Final = re.compile(r"^(\w+) \[[^\]]*\] (?:\[thrd:[^\]]*\]: )?")
# A shorter secret would occur in too many texts.
_SHORTEST_MASKED: Final = 4

UNKNOWN_TOPIC_OR_PARTITION: Final = 3
FATAL: Final = -150
_TIMED_OUT: Final = -192
AUTHENTICATION: Final = -169
SSL: Final = -181
_UNKNOWN: Final = frozenset({UNKNOWN_TOPIC_OR_PARTITION, -188, -190})
_LOCAL: Final[Mapping[int, type[MultilaneError]]] = {
    _TIMED_OUT: OperationTimeout,
    -185: OperationTimeout,
    -166: OperationTimeout,
    -195: NetworkError,
    -193: NetworkError,  # a host name
    -187: NetworkError,  # all brokers
    AUTHENTICATION: SaslError,
    SSL: TlsError,
    -186: ConfigError,
    FATAL: ClientFailed,
    -152: ClientClosed,  # purged from the queue
    -151: ClientClosed,  # purged on its way
    -197: ClientClosed,
}

# librdkafka's names and the range that it accepts for each; our ranges are wider.
_TIMES: Final[tuple[tuple[str, str, int, int], ...]] = (
    ("socket.timeout.ms", "request_timeout", 10, 300_000),
    ("socket.connection.setup.timeout.ms", "connect_timeout", 1_000, _LARGEST_INT32),
    ("reconnect.backoff.ms", "reconnect_backoff", 0, 3_600_000),
    ("reconnect.backoff.max.ms", "reconnect_backoff_max", 0, 3_600_000),
    ("retry.backoff.ms", "retry_backoff", 1, 300_000),
    ("retry.backoff.max.ms", "retry_backoff_max", 1, 300_000),
    ("metadata.max.age.ms", "metadata_max_age", 1, 86_400_000),
    ("metadata.recovery.rebootstrap.trigger.ms", "rebootstrap_trigger", 0, _LARGEST_INT32),
)


class SecretMask:
    """Replaces known secrets in texts."""

    __slots__ = ("_secrets",)

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        self._secrets = tuple(s for s in secrets if len(s.reveal()) >= _SHORTEST_MASKED)

    def __call__(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret.reveal(), MASK)
        return text


class LogBridge:
    """The logger for confluent-kafka; forwards to ours. librdkafka repeats its lines at every attempt to reconnect, so
    the first line of each kind is logged at once, then one every 30s with the number of repetitions."""

    __slots__ = ("_kinds", "_lock", "_mask", "_now")

    def __init__(self, mask: SecretMask, now: Callable[[], float] | None = None) -> None:
        self._mask = mask
        self._now = now or SystemClock().monotonic
        self._lock = threading.Lock()
        self._kinds: dict[str, RateLimit] = {}

    def log(self, level: int, text: str, *values: object) -> None:
        if not log.isEnabledFor(level):
            return
        line = printable(self._mask(_PREFIX.sub(r"\1: ", text % values if values else text)))
        repeats = self._count(line)
        if repeats:
            log.log(
                level, "librdkafka: %s%s", line, f" ({repeats} times since the last such line)" if repeats > 1 else ""
            )

    def _count(self, line: str) -> int:
        kind = _NUMBERS.sub("#", line.partition(" (after ")[0])
        with self._lock:
            if kind not in self._kinds and len(self._kinds) >= _MOST_KINDS:
                self._kinds.clear()
            return self._kinds.setdefault(kind, RateLimit(_LOG_EVERY)).due(self._now())


def connection_settings(config: ConnectionConfig) -> dict[str, Any]:
    """The connection's settings for librdkafka. The result contains secrets: pass it on and do not keep it."""
    settings: dict[str, Any] = {
        name: min(max(lowest, round(getattr(config, field) * 1_000)), highest)
        for name, field, lowest, highest in _TIMES
    }
    idle = config.connections_max_idle
    settings |= {
        "bootstrap.servers": ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in config.bootstrap_servers),
        "client.id": config.client_id,
        "connections.max.idle.ms": 0 if idle is None else min(round(idle * 1_000), _LARGEST_INT32),
        "metadata.recovery.strategy": "rebootstrap" if config.rebootstrap else "none",
        "receive.message.max.bytes": config.receive_max_bytes,
        "security.protocol": config.security.protocol.value,
    }
    settings |= {
        name: size
        for name, size in (
            ("socket.receive.buffer.bytes", config.receive_buffer_bytes),
            ("socket.send.buffer.bytes", config.send_buffer_bytes),
        )
        if size is not None
    }
    return settings | _tls_settings(config.security.tls) | _sasl_settings(config.security)


def _tls_settings(tls: TlsConfig | None) -> dict[str, Any]:
    if tls is None:
        return {}
    if frozenset(tls.versions) != _BOTH_VERSIONS:
        raise ConfigError(
            "ssl.enabled.protocols: multilane writes through librdkafka, which always offers TLSv1.2 and TLSv1.3; "
            "remove the property here"
        )
    settings: dict[str, Any] = {"ssl.endpoint.identification.algorithm": "https" if tls.verify_hostname else "none"}
    settings |= _pem(tls.trust, "ssl.ca")
    settings |= _pem(tls.certificate, "ssl.certificate")
    settings |= _pem(tls.key or tls.certificate, "ssl.key")  # one file may hold both
    if tls.key_password is not None:
        settings["ssl.key.password"] = tls.key_password.reveal()
    return settings


def _pem(pem: Pem | None, name: str) -> dict[str, str]:
    if pem is None:
        return {}
    return {f"{name}.location": pem.path} if isinstance(pem, PemFile) else {f"{name}.pem": pem.text.reveal()}


def _sasl_settings(security: SecurityConfig) -> dict[str, Any]:
    sasl = security.sasl
    if sasl is None:
        return {}
    settings: dict[str, Any] = {"sasl.mechanism": sasl.mechanism}
    if isinstance(sasl, PasswordLogin):
        return settings | {"sasl.username": sasl.username, "sasl.password": sasl.password.reveal()}
    return settings | {"oauth_cb": TokenSource(sasl)}


class TokenSource:
    """A token provider in confluent-kafka's form. The text of an exception may contain a credential, so only its type
    is reported.

    Without a token a client's constructor blocks for 10 s, so the first token is fetched before the client is created.
    """

    __slots__ = ("_first", "_login")

    def __init__(self, login: TokenLogin) -> None:
        self._login = login
        self._first: LibrdkafkaToken | None = None

    def prefetch(self) -> None:
        self._first = self._fetch()

    def __call__(self, _config: str) -> LibrdkafkaToken:
        first, self._first = self._first, None
        return first or self._fetch()

    def _fetch(self) -> LibrdkafkaToken:
        try:
            token = self._login.provider()
        except Exception as error:  # noqa: BLE001 - whatever the user's function raises
            raise SaslError(f"sasl.oauthbearer.token.provider raised {type(error).__name__}") from None
        if not isinstance(token, Token):
            raise SaslError(f"sasl.oauthbearer.token.provider returned {type(token).__name__}, not a Token")
        extensions = {**dict(self._login.extensions), **token.extensions}
        return token.value.reveal(), token.expires_at, token.principal, extensions


def start_client(kind: Callable[..., T], settings: dict[str, Any], mask: SecretMask) -> T:
    """Create a confluent-kafka client; translates its configuration errors."""
    source = settings.get("oauth_cb")
    if isinstance(source, TokenSource):
        source.prefetch()
    try:
        return kind(settings, logger=LogBridge(mask))
    except Exception as error:
        if type(error).__name__ != "KafkaException":
            raise
        raise raised_error(error, "librdkafka rejects the configuration", mask) from None


def secrets_of(config: ConnectionConfig) -> tuple[Secret, ...]:
    """The secrets that must not appear in librdkafka's texts."""
    found: list[Secret | None] = []
    if isinstance(config.security.sasl, PasswordLogin):
        found.append(config.security.sasl.password)
    if config.security.tls is not None:
        found.append(config.security.tls.key_password)
    return tuple(s for s in found if s is not None)


def error_from(error: Any, doing: str, mask: SecretMask) -> MultilaneError:
    """Translate a KafkaError. Broker codes are positive or -1; all others are librdkafka's own."""
    code = int(error.code())
    text = mask(str(error.str()))
    if code >= -1 and code != UNKNOWN_TOPIC_OR_PARTITION:
        return broker_error(code, doing, text)
    if code in _UNKNOWN:
        unknown = broker_error(UNKNOWN_TOPIC_OR_PARTITION, doing, text)
        unknown.retriable = False  # librdkafka has retried for long enough
        return unknown
    kind = _LOCAL.get(code, LibrdkafkaError)
    return kind(f"{doing}: {printable(text)} ({error.name()})")


def undelivered(error: Any, message: Any, mask: SecretMask, cause: str) -> MultilaneError:
    """Translate the error of a delivery report."""
    partition = message.partition()  # None if the topic's partitions were never known
    what = f"a record to {message.topic()}" + ("" if partition is None or partition < 0 else f"-{partition}")
    if error.code() == _TIMED_OUT:
        return OperationTimeout(f"{what}: not acknowledged within delivery.timeout.ms{cause}")
    return error_from(error, what, mask)


def raised_error(error: BaseException, doing: str, mask: SecretMask) -> MultilaneError:
    """Translate a raised KafkaException, which carries a KafkaError."""
    inner = error.args[0] if error.args else None
    if hasattr(inner, "code"):
        return error_from(inner, doing, mask)
    return LibrdkafkaError(f"{doing}: {printable(mask(str(error)))}")


class HandleOwner(Protocol):
    """An object that owns a confluent-kafka client, once it is created."""

    @property
    def handle(self) -> object | None: ...


_OWNERS: Final[WeakSet[Any]] = WeakSet()


def survive_forks(owner: HandleOwner) -> None:
    """Keep the handle alive in forked children: they lack librdkafka's threads, and freeing it would wait forever."""
    _OWNERS.add(owner)


def _keep_handles() -> None:
    for owner in list(_OWNERS):
        if owner.handle is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(owner.handle))


os.register_at_fork(after_in_child=_keep_handles)
