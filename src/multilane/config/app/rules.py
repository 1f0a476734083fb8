"""Rules against settings that are valid by themselves but cannot work together.

Thread: none (pure).

A rule yields findings: the field, the fields it depends on, what is wrong and what to do. `advice` handles settings
that work but surprise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from multilane.config.app.clients import PRODUCER_KEYS, READER_KEYS
from multilane.config.app.cluster import ClusterConfig, ErrorConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.entries import KeyPath
from multilane.config.app.files.source_location import did_you_mean, listed
from multilane.config.app.kafka_names import fault, meaning
from multilane.config.app.model import ProducerTopicConfig, ShovelConfig
from multilane.config.app.registry import SchemaRegistryConfig
from multilane.config.app.schedule import NotASchedule, Schedule
from multilane.config.app.shape import Frozen, key_of
from multilane.config.properties import UsedBy
from multilane.errors import ConfigError

_PROPERTIES: Final = "properties"
# Set by a required key, or by the app itself.
_SET_ELSEWHERE: Final = {
    "group.id": "groupId names the group",
    "bootstrap.servers": "the cluster's `brokers` names the brokers",
}


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """`steps` is the path of the field at fault. The finding is dropped if a field in `rests_on` has faults."""

    steps: KeyPath
    what: str
    fix: str
    rests_on: tuple[KeyPath, ...] = ()


EntryFinding = tuple[str, str, RuleFinding]  # the section and the name of an entry


def of_consumer(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    yield from _retry(config)
    yield from _topics(config)
    yield from _batches(config)
    yield from _order(config)
    yield from _backoff(config)


def _retry(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    if config.retry_count and config.retry is None:
        what = f"retryCount is {config.retry_count}, but there is no retry topic"
        yield RuleFinding(("retry_count",), what, "name a topic with `retry`, or remove retryCount", (("retry",),))


def _topics(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    named = (("retry", config.retry), ("error", config.error))
    for field, topic in named:
        if topic == config.topic:
            what = f"the {field} topic is the consumed topic: a failed record would come back at once"
            yield RuleFinding((field,), what, "use a separate topic", (("topic",),))
    if config.results is not None and config.results.topic in (config.topic, config.retry, config.error):
        what = f"the results topic is also a topic of the consumer's records, {config.results.topic}"
        yield RuleFinding(("results", "topic"), what, "use a separate topic", (("topic",), ("retry",), ("error",)))
    if config.results is not None and config.ack == "manual":
        what = "with ack: manual a function has returned before its records are done"
        yield RuleFinding(("results",), what, "set ack: auto, or publish in the function", (("ack",),))
    if config.retry is not None and config.retry == config.error:
        what = "the error topic is the retry topic: a record would be retried forever"
        yield RuleFinding(("error",), what, "use separate topics", (("retry",),))


def _batches(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    if config.unique and config.batch_size < 2:
        fix = "set batchSize to 2 or more: the newest record of a key is chosen within a batch"
        yield RuleFinding(("unique",), "uniqueListener needs batches", fix, (("batch_size",),))
    for field, used in (("unique", config.unique), ("batch_size", config.batch_size > 1)):
        if used and not config.lanes:
            what = "without lanes, records are handled one at a time and never batched"
            yield RuleFinding((field,), what, "set virtualPartitionCount to 1 or more", (("lanes",),))
    if config.lane_classes and not config.lanes:
        what = "laneClasses need ordinary lanes as well"
        yield RuleFinding(("lane_classes",), what, "set virtualPartitionCount to 1 or more", (("lanes",),))


def _order(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    if config.unique and config.retry_order == "none":
        what = "uniqueListener with retryOrder none would let an old record overwrite a newer one"
        yield RuleFinding(("retry_order",), what, "write retryOrder: key, or omit it", (("unique",),))
    elif config.retry_order == "key" and config.order_by == "none":
        what = "retryOrder keeps the order of keys, but orderBy none does not"
        yield RuleFinding(
            ("order_by",), what, "write orderBy: key, or retryOrder: none", (("retry_order",), ("unique",))
        )


def _backoff(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    backoff = config.retry_backoff
    if backoff is not None and backoff.kind == "exponential" and backoff.maximum < backoff.delay:
        steps = ("retry_backoff", "maximum")
        yield RuleFinding(
            steps, "maximum is below delay", "raise maximum or lower delay", (("retry_backoff", "delay"),)
        )


def of_shovel(config: ShovelConfig) -> Iterator[RuleFinding]:
    for field, topic in (("target_topic", config.target_topic), ("dead", config.dead)):
        if topic in config.topics:
            what = f"{topic} is among the topics to read: its records would circulate forever"
            yield RuleFinding((field,), what, "name another topic", (("topics",),))
    yield from _schedule(config, ())


def of_cluster(config: ClusterConfig) -> Iterator[RuleFinding]:
    if config.error is not None:
        yield from _schedule(config.error, ("error",))
    if config.schema_registry is not None:
        yield from _registry(config.schema_registry)


def _registry(config: SchemaRegistryConfig) -> Iterator[RuleFinding]:
    def finding(field: str, what: str, fix: str, *others: str) -> RuleFinding:
        above = "schema_registry"
        return RuleFinding((above, field), what, fix, tuple((above, other) for other in others))

    if (config.username is None) is not (config.password is None):
        field, other = ("password", "username") if config.username is None else ("username", "password")
        yield finding(field, f"there is no {other} for it", f"add {other}", other)
    if config.token is not None and config.username is not None:
        yield finding("token", "there is a basic login as well", "keep one of them", "username", "password")
    if config.key_file is not None and config.certificate_file is None:
        yield finding("key_file", "there is no certificate for it", "add certificateFile", "certificate_file")
    for field in ("ca_file", "certificate_file"):
        if getattr(config, field) is not None and not config.url.startswith("https:"):
            yield finding(field, "the registry's address has no TLS", "write https://, or remove it", "url")


def _schedule(config: ErrorConfig | ShovelConfig, above: KeyPath) -> Iterator[RuleFinding]:
    """Finds a day that exists in no year, which needs the zone; each part was checked alone before."""
    try:
        Schedule.parse(config.cron, config.time_zone)
    except NotASchedule as error:
        yield RuleFinding((*above, "cron"), "the schedule is not valid", str(error), ((*above, "time_zone"),))


def of_reference(
    config: ConsumerGroupConfig | ProducerTopicConfig | ShovelConfig, clusters: Iterable[str]
) -> Iterator[RuleFinding]:
    """The named cluster must exist."""
    names = {name.casefold(): name for name in clusters}
    if config.cluster.casefold() not in names:
        fix = did_you_mean(config.cluster, names.values()) or f"the clusters are: {listed(names.values())}"
        yield RuleFinding(("cluster",), "there is no cluster with this name", fix)


def of_dead_topics(
    clusters: Mapping[str, ClusterConfig], consumers: Iterable[ConsumerGroupConfig]
) -> Iterator[RuleFinding]:
    """The finding belongs to the cluster: `steps` begins with its name."""
    for consumer in consumers:
        cluster = clusters.get(consumer.cluster.casefold())
        dead = None if cluster is None or cluster.error is None else cluster.error.dead
        if cluster is not None and dead is not None and dead in (consumer.topic, consumer.retry, consumer.error):
            what = f"consumer {consumer.name} reads or writes this topic: dead records would come back"
            yield RuleFinding((cluster.name, "error", "dead"), what, "use a separate topic")


def of_properties(config: Frozen, properties: Mapping[str, object], above: KeyPath = ()) -> Iterator[RuleFinding]:
    """Checks each property by itself, and against the keys that set the same thing."""
    at_cluster = isinstance(config, ClusterConfig)
    for key, value in properties.items():
        steps = (*above, _PROPERTIES, key)
        text = fault(key, value)
        if text:
            what, _, fix = text.removeprefix(f"{key}: ").partition("; ")
            yield RuleFinding(steps, what, fix or "remove it or correct it")
            continue
        yield from _clash(config, key, value, steps, at_cluster)


def _clash(config: Frozen, key: str, value: object, steps: KeyPath, at_cluster: bool) -> Iterator[RuleFinding]:
    found = meaning(key)
    name = found.row.name
    if name in _SET_ELSEWHERE:
        yield RuleFinding(steps, _SET_ELSEWHERE[name], "remove it here")
    elif name == "client.id" and at_cluster:
        yield RuleFinding(steps, "clientId sets the name", "remove it here")
    elif name == "enable.auto.commit" and str(value).strip().lower() != "false":
        yield RuleFinding(steps, "multilane commits settled records itself, without auto-commit", "remove it")
    elif found.used_by is UsedBy.PRODUCER and not at_cluster:
        yield RuleFinding(steps, "it is a producer property", "move it to the cluster's `properties`")
    else:
        yield from _twice(config, name, steps)


def _twice(config: Frozen, name: str, steps: KeyPath) -> Iterator[RuleFinding]:
    settings: Frozen = config.producer if isinstance(config, ClusterConfig) else config
    keys = PRODUCER_KEYS if isinstance(config, ClusterConfig) else READER_KEYS
    for field, (property_name, _) in keys.items():
        # A cluster's request.timeout.ms is for all its clients; producerConfig.timeout is for its producers.
        if property_name == name and field in settings.model_fields_set and property_name != "request.timeout.ms":
            key = key_of(field, type(settings).model_fields[field])
            yield RuleFinding(steps, f"the key {key} sets the same thing", "keep one of them")


def of_whole(
    parse: Callable[[Mapping[str, object]], object], properties: Mapping[str, object], steps: KeyPath
) -> Iterator[RuleFinding]:
    """The client's own check of the properties that it would get."""
    try:
        parse(_with_token_provider(properties))
    except ConfigError as error:
        what, _, fix = str(error).partition("; ")
        yield RuleFinding(steps, what, fix or "correct it")


def _with_token_provider(properties: Mapping[str, object]) -> Mapping[str, object]:
    """A file cannot hold the function that OAUTHBEARER needs: the application passes it in code."""
    if "OAUTHBEARER" not in str(properties.get("sasl.mechanism", "")).upper():
        return properties
    return {"sasl.oauthbearer.token.provider": _no_token, **properties}


def _no_token() -> None:
    raise ConfigError("the placeholder token provider of the configuration check was called")
