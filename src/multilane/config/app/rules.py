"""What cannot work, said of keys that are each valid by themselves.

Thread: none (pure).

A rule yields findings: the field they are about, the fields they rest on, what is wrong and what to do. What only
surprises, and works, is for `advice`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from multilane.config.app.clients import PRODUCER_KEYS, READER_KEYS
from multilane.config.app.cluster import ClusterConfig, ErrorConfig
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.config.app.files.source_location import listed, meant
from multilane.config.app.kafka_names import fault, meaning
from multilane.config.app.model import ProducerTopicConfig, ShovelConfig
from multilane.config.app.schedule import NotASchedule, Schedule
from multilane.config.app.shape import Frozen, key_of
from multilane.config.properties import Scope
from multilane.errors import ConfigError

Steps = tuple[str, ...]
_PROPERTIES: Final = "properties"
# Said by a key that must be there anyway, or by the app itself.
_SAID_ELSEWHERE: Final = {
    "group.id": "the group is named by groupId",
    "bootstrap.servers": "the brokers are named by the cluster's `brokers`",
}


@dataclass(frozen=True, slots=True)
class RuleFinding:
    """`steps` leads to the field at fault. Without `rests_on` being sound, nothing is said."""

    steps: Steps
    what: str
    fix: str
    rests_on: tuple[Steps, ...] = ()


def of_consumer(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    yield from _retry(config)
    yield from _topics(config)
    yield from _batches(config)
    yield from _order(config)
    yield from _backoff(config)


def _retry(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    if config.retry_count and config.retry is None:
        what = f"retryCount is {config.retry_count}, and there is no retry topic"
        yield RuleFinding(("retry_count",), what, "name a topic with `retry`, or remove retryCount", (("retry",),))


def _topics(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    named = (("retry", config.retry), ("error", config.error))
    for field, topic in named:
        if topic == config.topic:
            what = f"the {field} topic is the topic that is consumed: a failed record would come back at once"
            yield RuleFinding((field,), what, "give it a topic of its own", (("topic",),))
    if config.retry is not None and config.retry == config.error:
        what = "the error topic is the retry topic: a record would never be given up"
        yield RuleFinding(("error",), what, "give each a topic of its own", (("retry",),))


def _batches(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    if config.unique and config.batch_size < 2:
        fix = "set batchSize to 2 or more: the newest record of a key is chosen within a batch"
        yield RuleFinding(("unique",), "uniqueListener needs batches", fix, (("batch_size",),))
    for field, used in (("unique", config.unique), ("batch_size", config.batch_size > 1)):
        if used and not config.lanes:
            what = "without lanes records are handled one after the other, and none is gathered"
            yield RuleFinding((field,), what, "set virtualPartitionCount to 1 or more", (("lanes",),))
    if config.lane_classes and not config.lanes:
        what = "laneClasses need lanes beside which they are"
        yield RuleFinding(("lane_classes",), what, "set virtualPartitionCount to 1 or more", (("lanes",),))


def _order(config: ConsumerGroupConfig) -> Iterator[RuleFinding]:
    if config.unique and config.retry_order == "none":
        what = "uniqueListener with retryOrder none would let an old record overwrite a newer one"
        yield RuleFinding(("retry_order",), what, "write retryOrder: key, or leave it out", (("unique",),))
    elif config.retry_order == "key" and config.order_by == "none":
        what = "retryOrder keeps the order of keys, and orderBy none gives it up"
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
            what = f"{topic} is among the topics that are read: its records would go round in a circle"
            yield RuleFinding((field,), what, "name another topic", (("topics",),))
    yield from _schedule(config, ())


def of_cluster(config: ClusterConfig) -> Iterator[RuleFinding]:
    if config.error is not None:
        yield from _schedule(config.error, ("error",))


def _schedule(config: ErrorConfig | ShovelConfig, above: Steps) -> Iterator[RuleFinding]:
    """A day that exists in no year, seen only with the zone; both parts were read alone before."""
    try:
        Schedule.parse(config.cron, config.time_zone)
    except NotASchedule as error:
        yield RuleFinding((*above, "cron"), "the schedule is not valid", str(error), ((*above, "time_zone"),))


def of_reference(
    config: ConsumerGroupConfig | ProducerTopicConfig | ShovelConfig, clusters: Iterable[str]
) -> Iterator[RuleFinding]:
    """A cluster that is named must be there."""
    names = {name.casefold(): name for name in clusters}
    if config.cluster.casefold() not in names:
        fix = meant(config.cluster, names.values()) or f"the clusters are: {listed(names.values())}"
        yield RuleFinding(("cluster",), "there is no cluster of this name", fix)


def of_dead_topics(
    clusters: Mapping[str, ClusterConfig], consumers: Iterable[ConsumerGroupConfig]
) -> Iterator[RuleFinding]:
    """Told of the cluster whose name leads to it: `steps` begins with the name."""
    for consumer in consumers:
        cluster = clusters.get(consumer.cluster.casefold())
        dead = None if cluster is None or cluster.error is None else cluster.error.dead
        if cluster is not None and dead is not None and dead in (consumer.topic, consumer.retry, consumer.error):
            what = f"consumer {consumer.name} reads or writes this topic: given-up records would come back"
            yield RuleFinding((cluster.name, "error", "dead"), what, "give it a topic of its own")


def of_properties(config: Frozen, properties: Mapping[str, object], above: Steps = ()) -> Iterator[RuleFinding]:
    """Each property by itself, and against the keys that say the same."""
    at_cluster = isinstance(config, ClusterConfig)
    for key, value in properties.items():
        steps = (*above, _PROPERTIES, key)
        text = fault(key, value)
        if text:
            what, _, fix = text.removeprefix(f"{key}: ").partition("; ")
            yield RuleFinding(steps, what, fix or "remove it or correct it")
            continue
        yield from _clash(config, key, value, steps, at_cluster)


def _clash(config: Frozen, key: str, value: object, steps: Steps, at_cluster: bool) -> Iterator[RuleFinding]:
    found = meaning(key)
    name = found.row.name
    if name in _SAID_ELSEWHERE:
        yield RuleFinding(steps, _SAID_ELSEWHERE[name], "remove it here")
    elif name == "client.id" and at_cluster:
        yield RuleFinding(steps, "the name is said by clientId", "remove it here")
    elif name == "enable.auto.commit" and str(value).strip().lower() != "false":
        yield RuleFinding(steps, "positions are committed when records are settled, never by themselves", "remove it")
    elif found.scope is Scope.PRODUCER and not at_cluster:
        yield RuleFinding(steps, "it is a property of producers", "write it below the cluster's `properties`")
    else:
        yield from _twice(config, name, steps)


def _twice(config: Frozen, name: str, steps: Steps) -> Iterator[RuleFinding]:
    settings: Frozen = config.producer if isinstance(config, ClusterConfig) else config
    keys = PRODUCER_KEYS if isinstance(config, ClusterConfig) else READER_KEYS
    for field, (said, _) in keys.items():
        # A cluster's request.timeout.ms is for every client of it; producerConfig.timeout for its producers.
        if said == name and field in settings.model_fields_set and said != "request.timeout.ms":
            key = key_of(field, type(settings).model_fields[field])
            yield RuleFinding(steps, f"the key {key} says the same", "keep one of them")


def of_whole(
    parse: Callable[[Mapping[str, object]], object], properties: Mapping[str, object], steps: Steps
) -> Iterator[RuleFinding]:
    """What the client itself says to the properties it would get."""
    try:
        parse(_with_token_provider(properties))
    except ConfigError as error:
        what, _, fix = str(error).partition("; ")
        yield RuleFinding(steps, what, fix or "correct it")


def _with_token_provider(properties: Mapping[str, object]) -> Mapping[str, object]:
    """A file cannot hold the function that OAUTHBEARER needs: the application hands it over in code."""
    if "OAUTHBEARER" not in str(properties.get("sasl.mechanism", "")).upper():
        return properties
    return {"sasl.oauthbearer.token.provider": _no_token, **properties}


def _no_token() -> None:
    raise ConfigError("a stand-in for checking configuration was asked for a token")
