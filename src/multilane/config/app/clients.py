"""Translates the app's configuration into the properties of multilane's own Consumer and Producer.

Thread: any. Pure with one exception: it reads several certificate files and passes them on as one string.

The setting closest to the client wins, from weakest to strongest: the default, the cluster's `properties`, a key set
for the consumer, the consumer's `properties`. The app commits by itself, so auto-commit is always off. Owns the mapping
from keys to properties.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from multilane.config.app.cluster import Auth, ClusterConfig, ErrorConfig, ProducerDefaults
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.kafka_names import canonical, owner
from multilane.config.app.model import ShovelConfig
from multilane.config.properties import UsedBy
from multilane.errors import ConfigError
from multilane.secret import Secret

ReaderConfig = ConsumerGroupConfig | ErrorConfig | ShovelConfig

_RESET: Final = {"newest": "latest", "oldest": "earliest"}
# Field -> property, and the conversion of its value. For KIP-848 groups the broker sets sessions and heartbeats.
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
_USED_BY_CONSUMERS: Final = frozenset({UsedBy.EVERY_CLIENT, UsedBy.CONSUMER})
_USED_BY_PRODUCERS: Final = frozenset({UsedBy.EVERY_CLIENT, UsedBy.PRODUCER})
# Acknowledged copies rely on these; no setting may weaken them for retry and error topics. The topic limits the size of
# a copy: a limit of ours would keep a record that one topic stored out of the next.
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
    """The properties of a Producer. `durable` is for retry and error topics: acks=all and idempotence."""
    made = _connection(cluster)
    settings = cluster.producer
    _overlay(made, _written(settings, PRODUCER_KEYS, given=False))
    _overlay(made, canonical(cluster.properties, _USED_BY_PRODUCERS))
    _overlay(made, _written(settings, PRODUCER_KEYS, given=True))
    if durable:
        made = for_copies(made)
    elif made["acks"] not in ("all", "-1"):
        made.setdefault("enable.idempotence", False)
    return made


def for_copies(properties: Mapping[str, object]) -> dict[str, object]:
    """The properties of a producer of copies: these, but always with acks=all, idempotence and any record size."""
    return {name: value for name, value in properties.items() if owner(name) not in _WEAKENING} | _DURABLE


def of_readers(properties: Mapping[str, object]) -> dict[str, object]:
    """The properties among these that are for consumers."""
    return canonical(properties, _USED_BY_CONSUMERS)


def of_producers(properties: Mapping[str, object]) -> dict[str, object]:
    """The properties among these that are for producers."""
    return canonical(properties, _USED_BY_PRODUCERS)


def admin_properties(cluster: ClusterConfig) -> dict[str, object]:
    """The properties of an Admin: the connection's."""
    made = _connection(cluster)
    _overlay(made, canonical(cluster.properties, frozenset({UsedBy.EVERY_CLIENT})))
    return made


def _reader(config: ReaderConfig, cluster: ClusterConfig) -> dict[str, object]:
    made = _connection(cluster) | {"group.id": config.group_id}
    _overlay(made, _written(config, READER_KEYS, given=False))
    _overlay(made, canonical(cluster.properties, _USED_BY_CONSUMERS))
    _overlay(made, _written(config, READER_KEYS, given=True))
    _overlay(made, canonical(config.properties, _USED_BY_CONSUMERS))
    if made.get("group.protocol") == "auto":
        made.pop("group.protocol")
    if str(made.get("group.protocol", "")).lower() != "classic":
        # Under `auto` they would select the classic protocol; only a property does that on purpose.
        explicit = canonical(cluster.properties, _USED_BY_CONSUMERS) | canonical(config.properties, _USED_BY_CONSUMERS)
        made = {name: value for name, value in made.items() if name not in CLASSIC_ONLY or name in explicit}
    return made | {"enable.auto.commit": False}


def _written(
    config: ReaderConfig | ProducerDefaults, keys: Mapping[str, tuple[str, Callable[[Any], object]]], *, given: bool
) -> dict[str, object]:
    """The properties of the keys that are set (`given`), or the defaults of those that are not."""
    wanted = [name for name in keys if (name in config.model_fields_set) is given]
    return {keys[name][0]: keys[name][1](getattr(config, name)) for name in wanted}


def _overlay(under: dict[str, object], over: Mapping[str, object]) -> None:
    """Overlays properties. Two spellings of one property must not coexist: the later replaces the earlier."""
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
            why = error.strerror if isinstance(error, OSError) else "it is not text"
            raise ConfigError(f"auth.certificates: {path} cannot be read: {why}; give PEM files") from None
    return {"ssl.truststore.certificates": Secret("\n".join(texts))}
