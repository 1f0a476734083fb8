"""From the app's configuration to the properties that multilane's own Consumer and Producer take.

Thread: any. Pure but for one thing: several certificate files are read and handed over as one text.

What is closer to the client wins: a default, then the cluster's `properties`, then a key that was written for the
consumer, then the consumer's `properties`. Commits are the app's own affair, so auto-commit is always off. Owns the
table of which key is which property.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from multilane.config.app.cluster import Auth, ClusterConfig, ErrorConfig, ProducerDefaults
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.kafka_names import canonical, owner
from multilane.config.app.model import ShovelConfig
from multilane.config.properties import Scope
from multilane.errors import ConfigError
from multilane.secret import Secret

Reader = ConsumerGroupConfig | ErrorConfig | ShovelConfig

_RESET: Final = {"newest": "latest", "oldest": "earliest"}
# Field -> property and how the value is said there. KIP-848 keeps sessions and heartbeats on the broker.
READER_KEYS: Final[Mapping[str, tuple[str, Callable[[Any], object]]]] = {
    "offset_initial": ("auto.offset.reset", _RESET.__getitem__),
    "fetch_max_bytes": ("max.partition.fetch.bytes", int),
    "rebalance_timeout": ("max.poll.interval.ms", lambda seconds: max(1, round(seconds * 1000))),
    "group_protocol": ("group.protocol", lambda word: word or "auto"),
    "session_timeout": ("session.timeout.ms", lambda seconds: max(1, round(seconds * 1000))),
    "heartbeat_interval": ("heartbeat.interval.ms", lambda seconds: max(1, round(seconds * 1000))),
}
CLASSIC_ONLY: Final = ("session.timeout.ms", "heartbeat.interval.ms")
PRODUCER_KEYS: Final[Mapping[str, tuple[str, Callable[[Any], object]]]] = {
    "required_acks": ("acks", str),
    "timeout": ("request.timeout.ms", lambda seconds: max(1, round(seconds * 1000))),
    "max_message_bytes": ("max.request.size", int),
    "compression": ("compression.type", str),
}
_OF_READERS: Final = frozenset({Scope.CLIENT, Scope.CONSUMER})
_OF_PRODUCERS: Final = frozenset({Scope.CLIENT, Scope.PRODUCER})
# What an acknowledged copy rests on; nobody may weaken it for retry and error topics. How large a copy may be is for
# its topic to say: a bound of ours would keep records that were stored in one topic from the next.
_DURABLE: Final = {"acks": "all", "enable.idempotence": True, "max.request.size": 1_000_000_000}
_WEAKENING: Final = (
    "acks",
    "enable.idempotence",
    "retries",
    "max.in.flight.requests.per.connection",
    "max.request.size",
)


def consumer_properties(group: ConsumerGroupConfig, cluster: ClusterConfig) -> dict[str, object]:
    """The properties of the group's Consumer."""
    return _reader(group, cluster)


def error_consumer_properties(config: ErrorConfig | ShovelConfig, cluster: ClusterConfig) -> dict[str, object]:
    """The properties of the Consumer of error topics."""
    return _reader(config, cluster)


def producer_properties(cluster: ClusterConfig, *, durable: bool) -> dict[str, object]:
    """The properties of a Producer. `durable` is for retry and error topics: acknowledged by all, written once."""
    made = _connection(cluster)
    settings = cluster.producer
    _lay(made, _said(settings, PRODUCER_KEYS, given=False))
    _lay(made, canonical(cluster.properties, _OF_PRODUCERS))
    _lay(made, _said(settings, PRODUCER_KEYS, given=True))
    if durable:
        made = for_copies(made)
    elif made["acks"] not in ("all", "-1"):
        made.setdefault("enable.idempotence", False)
    return made


def for_copies(properties: Mapping[str, object]) -> dict[str, object]:
    """Properties of a producer of copies: whatever else they say, acknowledged by all, written once, of any size."""
    return {name: value for name, value in properties.items() if owner(name) not in _WEAKENING} | _DURABLE


def of_readers(properties: Mapping[str, object]) -> dict[str, object]:
    """What of mixed properties is for consumers."""
    return canonical(properties, _OF_READERS)


def of_producers(properties: Mapping[str, object]) -> dict[str, object]:
    """What of mixed properties is for producers."""
    return canonical(properties, _OF_PRODUCERS)


def admin_properties(cluster: ClusterConfig) -> dict[str, object]:
    """The properties of an Admin: those of the connection."""
    made = _connection(cluster)
    _lay(made, canonical(cluster.properties, frozenset({Scope.CLIENT})))
    return made


def _reader(config: Reader, cluster: ClusterConfig) -> dict[str, object]:
    made = _connection(cluster) | {"group.id": config.group_id}
    _lay(made, _said(config, READER_KEYS, given=False))
    _lay(made, canonical(cluster.properties, _OF_READERS))
    _lay(made, _said(config, READER_KEYS, given=True))
    _lay(made, canonical(config.properties, _OF_READERS))
    if made.get("group.protocol") == "auto":
        made.pop("group.protocol")
    if str(made.get("group.protocol", "")).lower() != "classic":
        # Under `auto` they would choose the classic protocol; only a property says that on purpose.
        meant = canonical(cluster.properties, _OF_READERS) | canonical(config.properties, _OF_READERS)
        made = {name: value for name, value in made.items() if name not in CLASSIC_ONLY or name in meant}
    return made | {"enable.auto.commit": False}


def _said(
    config: Reader | ProducerDefaults, keys: Mapping[str, tuple[str, Callable[[Any], object]]], *, given: bool
) -> dict[str, object]:
    """The properties of the keys that were written (`given`), or of the defaults of those that were not."""
    wanted = [name for name in keys if (name in config.model_fields_set) is given]
    return {keys[name][0]: keys[name][1](getattr(config, name)) for name in wanted}


def _lay(under: dict[str, object], over: Mapping[str, object]) -> None:
    """Puts properties over others. Two spellings of one property may not meet: the later takes the other's place."""
    for name, value in over.items():
        row = owner(name)
        for other in [known for known in under if owner(known) == row]:
            del under[other]
        under[name] = value


def _connection(cluster: ClusterConfig) -> dict[str, object]:
    made: dict[str, object] = {"bootstrap.servers": ",".join(cluster.brokers), "client.id": cluster.client_id}
    return made if cluster.auth is None else made | _login(cluster.auth)


def _login(auth: Auth) -> dict[str, object]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": auth.username,
        "sasl.password": auth.password,
        **_trust(auth.certificates),
    }


def _trust(paths: tuple[str, ...]) -> dict[str, object]:
    if not paths:
        return {}
    if len(paths) == 1:
        return {"ssl.ca.location": paths[0]}
    texts = []
    for path in paths:
        try:
            texts.append(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not a text"
            raise ConfigError(f"auth.certificates: {path} cannot be read: {why}; give PEM files") from None
    return {"ssl.truststore.certificates": Secret("\n".join(texts))}
