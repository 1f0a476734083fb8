"""Plans a topic: its history by Spark, lanes simulated, settings recommended. The composition root of `multilane plan`.

Thread: application.

What can be found out without Spark is found out first: that takes a moment, Spark takes seconds to start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from multilane.client.admin.admin import Admin
from multilane.config.app.clients import of_readers
from multilane.config.app.kafka_names import canonical
from multilane.config.properties import Scope
from multilane.errors import BrokerError, ConfigError, NoHistory
from multilane.sizing.goals import Goals
from multilane.sizing.history import Arrivals, History
from multilane.sizing.recommendation import Recommendation, recommend
from multilane.spark.history import Asked, read_arrivals, read_history
from multilane.spark.session import local_slots, one_job
from multilane.spark.topic_frames import kafka_options
from multilane.types import TopicPartition

_UNKNOWN_TOPIC: Final = 3


@dataclass(frozen=True, slots=True)
class PlanRequest:
    topic: str
    properties: Mapping[str, object] = field(repr=False)  # of the connection; may have secrets in it
    goals: Goals
    slot: float = 10.0  # seconds
    since: int | None = None  # ms since 1970
    until: int | None = None
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    history: History
    arrivals: Arrivals  # what was simulated: the busiest slot of the busiest partition
    goals: Goals
    recommended: Recommendation


def plan_topic(request: PlanRequest, tell: Callable[[str], object] = lambda step: None) -> TopicPlan:
    """`tell` hears what is going on."""
    tell(f"looking at {request.topic}")
    partitions = _partitions_with_records(request)
    tell("starting Spark")
    with one_job(request.master, f"multilane plan {request.topic}", request.conf) as spark:
        tell(f"reading {request.topic}")
        asked = _asked(request, partitions)
        history = read_history(spark, asked)
        if history is None:
            raise NoHistory(f"{request.topic} has no records in this time: choose another, or leave it out")
        arrivals = read_arrivals(spark, asked, history.heaviest_load)
    tell("simulating lanes")
    return TopicPlan(history, arrivals, request.goals, recommend(history, arrivals, request.goals))


def _partitions_with_records(request: PlanRequest) -> int:
    """The number of partitions; an error where there is nothing to plan from."""
    topic = request.topic
    with Admin(canonical(dict(request.properties), frozenset({Scope.CLIENT}))) as admin:
        try:
            described = admin.topics([topic])[topic]
        except BrokerError as error:
            if error.code != _UNKNOWN_TOPIC:
                raise
            raise ConfigError(f"there is no topic {topic!r} on these brokers: mend its name") from None
        partitions = [TopicPartition(topic, one.number) for one in described.partitions]
        begins, ends = _offsets(admin, partitions, "earliest"), _offsets(admin, partitions, "latest")
    if begins == ends:
        raise NoHistory(f"{topic} is empty: there is no history to plan from")
    return len(partitions)


def _offsets(admin: Admin, partitions: list[TopicPartition], at: Literal["earliest", "latest"]) -> list[int]:
    return [place.offset for place in admin.offsets(partitions, at).values() if place is not None]


def _asked(request: PlanRequest, partitions: int) -> Asked:
    options = kafka_options(of_readers(request.properties))
    slots = local_slots(request.master)
    if slots is not None:  # a few partitions keep many cores busy too
        options["minPartitions"] = str(slots)
    return Asked(request.topic, partitions, options, round(request.slot * 1_000), request.since, request.until)
