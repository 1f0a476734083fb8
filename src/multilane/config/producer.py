"""The configuration of a producer: a connection, batching and acknowledgement.

Thread: none (pure values).

Accepts Java's names and librdkafka's names for the same properties. Defaults are Java's except for `batch.size` (1 MB:
librdkafka has no pool of small buffers to save). All times are seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from multilane.config.connection import ConnectionConfig, connection_from
from multilane.config.properties import INT_MAX, Property, PropertyKind, UsedBy
from multilane.config.spelling import Spelling, fold
from multilane.config.values import Values, _parse, read
from multilane.errors import ConfigError

_ACKS: Final = {"all": -1, "-1": -1, "0": 0, "1": 1}
_MOST_IN_FLIGHT: Final = 5  # batches that brokers remember of an idempotent producer
_PREFIXES: Final = ("producer.properties.", "producer.")


def _row(name: str, kind: PropertyKind, doc: str, *aliases: str, **facts: object) -> Property:
    return Property(name=name, kind=kind, doc=doc, used_by=UsedBy.PRODUCER, aliases=aliases, **facts)  # type: ignore[arg-type]


PRODUCER_PROPERTIES: Final[tuple[Property, ...]] = (
    _row(
        "acks",
        PropertyKind.CHOICE,
        "How many replicas must acknowledge a record: all in-sync ones, the leader (1), none (0).",
        "request.required.acks",
        default="all",
        choices=tuple(_ACKS),
    ),
    _row(
        "enable.idempotence",
        PropertyKind.FLAG,
        "Whether a record that is resent after an error is stored once and in order.",
        default=True,
    ),
    _row(
        "linger.ms",
        PropertyKind.MILLIS,
        "How long a record may wait for others to share its batch.",
        "queue.buffering.max.ms",
        default=5,
        minimum=0,
        maximum=900_000,
    ),
    _row(
        "batch.size", PropertyKind.BYTES, "The maximum size of a batch.", default=1_000_000, minimum=1, maximum=INT_MAX
    ),
    _row(
        "buffer.memory",
        PropertyKind.BYTES,
        "Memory for records that wait for acknowledgement; send() waits while it is full.",
        default=33_554_432,
        minimum=1024,
        maximum=INT_MAX,
        scaled_aliases=(("queue.buffering.max.kbytes", 1024),),
    ),
    _row(
        "max.block.ms",
        PropertyKind.MILLIS,
        "How long send() may wait for memory, and a record for its topic's metadata (at most 30 s).",
        default=60_000,
        minimum=0,
        maximum=INT_MAX,
    ),
    _row(
        "delivery.timeout.ms",
        PropertyKind.MILLIS,
        "How long a record may take from send() to its acknowledgement, including retries.",
        "message.timeout.ms",
        default=120_000,
        minimum=1,
        maximum=INT_MAX,
    ),
    _row(
        "compression.type",
        PropertyKind.CHOICE,
        "The compression of batches.",
        "compression.codec",
        default="none",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
    ),
    _row(
        "max.request.size",
        PropertyKind.BYTES,
        "The maximum size of a request, and therefore of a record.",
        "message.max.bytes",
        default=1_048_576,
        minimum=1_000,
        maximum=1_000_000_000,
    ),
    _row(
        "max.in.flight.requests.per.connection",
        PropertyKind.INTEGER,
        "The maximum number of concurrent requests per broker.",
        "max.in.flight",
        default=5,
        minimum=1,
        maximum=1_000_000,
    ),
    _row(
        "retries",
        PropertyKind.INTEGER,
        "How often a request is retried; delivery.timeout.ms is the better limit.",
        "message.send.max.retries",
        default=INT_MAX,
        minimum=0,
        maximum=INT_MAX,
    ),
    _row(
        "partitioner",
        PropertyKind.CHOICE,
        "How keys map to partitions; murmur2_random is Java's default. Records without a key are spread.",
        default="murmur2_random",
        choices=("murmur2_random", "murmur2", "consistent_random", "consistent", "fnv1a_random", "fnv1a", "random"),
    ),
)

_REFUSED: Final[Mapping[str, str]] = {
    "key.serializer": "keys and values are bytes; encode them in your own code",
    "value.serializer": "keys and values are bytes; encode them in your own code",
    "partitioner.class": "it names Java classes; use `partitioner`, or pass the partition to send()",
    "transactional.id": "this producer does not support transactions",
    "transaction.timeout.ms": "this producer does not support transactions",
}
_SPELLINGS: Final[dict[str, Spelling]] = {
    name: Spelling(row, scale)
    for row in PRODUCER_PROPERTIES
    for name, scale in ((row.name, 1), *((alias, 1) for alias in row.aliases), *row.scaled_aliases)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """The repr shows no secret. `acks` -1 means all."""

    connection: ConnectionConfig
    acks: int
    idempotence: bool
    linger: float
    batch_size: int
    buffer_memory: int
    max_block: float
    delivery_timeout: float
    compression: str
    max_request_size: int
    max_in_flight: int
    retries: int
    partitioner: str


def parse_producer(properties: Mapping[str, object]) -> ProducerConfig:
    """A producer's configuration from properties in any accepted spelling, or a ConfigError."""
    own: dict[str, object] = {}
    others: dict[str, object] = {}
    for key, value in properties.items():
        (own if _is_own(key) else others)[key] = value
    values = _read_own(own)
    config = ProducerConfig(
        connection=connection_from(read(others, frozenset({UsedBy.EVERY_CLIENT}))),
        acks=_ACKS[values.text("acks")],
        idempotence=values.flag("enable.idempotence"),
        linger=values.seconds("linger.ms"),
        batch_size=values.integer("batch.size"),
        buffer_memory=values.integer("buffer.memory"),
        max_block=values.seconds("max.block.ms"),
        delivery_timeout=values.seconds("delivery.timeout.ms"),
        compression=values.text("compression.type"),
        max_request_size=values.integer("max.request.size"),
        max_in_flight=values.integer("max.in.flight.requests.per.connection"),
        retries=values.integer("retries"),
        partitioner=values.text("partitioner"),
    )
    _check(values, config)
    return config


def _is_own(key: object) -> bool:
    """A key that is not a string is left to `read`, which refuses it."""
    return isinstance(key, str) and _own_name(key) in _SPELLINGS.keys() | _REFUSED.keys()


def _own_name(key: str) -> str:
    name = fold(key)
    return next((name.removeprefix(p) for p in _PREFIXES if name.startswith(p)), name)


def _read_own(properties: Mapping[str, object]) -> Values:
    parsed: dict[str, object] = {row.name: row.default for row in PRODUCER_PROPERTIES}
    given: dict[str, str] = {}
    for key, value in properties.items():
        name = _own_name(key)
        if value is None:
            continue
        if name in _REFUSED:
            raise ConfigError(f"{key} is not accepted: {_REFUSED[name]}")
        spelling = _SPELLINGS[name]
        fresh = _parse(key, spelling, str(value) if spelling.row.name == "acks" else value)
        row = spelling.row.name
        if row in given and fresh != parsed[row]:
            raise ConfigError(f"{given[row]} and {key} are spellings of {row} with different values; keep one")
        given.setdefault(row, key)
        parsed[row] = fresh
    return Values(parsed, given, ())


def _check(values: Values, config: ProducerConfig) -> None:
    """Checks the requirements of idempotence, and times that contradict each other."""
    if config.idempotence and config.acks != -1:
        raise ConfigError(
            f"{values.spelled('acks')} must be all with idempotence; set enable.idempotence=false to turn that off"
        )
    if config.idempotence and config.max_in_flight > _MOST_IN_FLIGHT:
        key = values.spelled("max.in.flight.requests.per.connection")
        raise ConfigError(f"{key} must be at most {_MOST_IN_FLIGHT} with idempotence")
    if config.idempotence and config.retries == 0:
        raise ConfigError(f"{values.spelled('retries')} must be above 0 with idempotence")
    if config.delivery_timeout <= config.linger:
        raise ConfigError(f"{values.spelled('delivery.timeout.ms')} must be above {values.spelled('linger.ms')}")
