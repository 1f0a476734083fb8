"""Plans a topic: reads its history with Spark, simulates lanes, recommends settings. The composition root of
`multilane plan`.

Thread: application.

Checks without Spark come first: they take a moment, and Spark takes seconds to start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from multilane.client.admin.admin import Admin
from multilane.config.app.clients import of_readers
from multilane.config.app.kafka_names import canonical
from multilane.config.properties import UsedBy
from multilane.errors import BrokerError, ConfigError, NoHistory
from multilane.sizing.goals import Goals
from multilane.sizing.history import Arrivals, History
from multilane.sizing.recommendation import Recommendation, recommend
from multilane.spark.history import HistoryQuery, read_arrivals, read_history
from multilane.spark.session import local_slots, one_job
from multilane.spark.topic_frames import kafka_options
from multilane.types import TopicPartition

_UNKNOWN_TOPIC: Final = 3


@dataclass(frozen=True, slots=True)
class PlanRequest:
    topic: str
    properties: Mapping[str, object] = field(repr=False)  # of the connection; may contain secrets
    goals: Goals
    slot: float = 10.0  # seconds
    since: int | None = None  # ms since 1970
    until: int | None = None
    master: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicPlan:
    history: History
    arrivals: Arrivals  # input of the simulation: the busiest slot of the busiest partition
    goals: Goals
    recommended: Recommendation


def plan_topic(request: PlanRequest, on_step: Callable[[str], object] = lambda step: None) -> TopicPlan:
    """`on_step` is called at the start of each step."""
    on_step(f"looking at {request.topic}")
    partitions = _partitions_with_records(request)
    on_step("starting Spark")
    with one_job(request.master, f"multilane plan {request.topic}", request.conf) as spark:
        on_step(f"reading {request.topic}")
        query = _history_query(request, partitions)
        history = read_history(spark, query)
        if history is None:
            raise NoHistory(f"{request.topic} has no records in this time range: choose another, or leave it out")
        arrivals = read_arrivals(spark, query, history.heaviest_load)
    on_step("simulating lanes")
    return TopicPlan(history, arrivals, request.goals, recommend(history, arrivals, request.goals))


def _partitions_with_records(request: PlanRequest) -> int:
    """The number of partitions; raises if the topic has no records."""
    topic = request.topic
    with Admin(canonical(dict(request.properties), frozenset({UsedBy.EVERY_CLIENT}))) as admin:
        try:
            described = admin.topics([topic])[topic]
        except BrokerError as error:
            if error.code != _UNKNOWN_TOPIC:
                raise
            raise ConfigError(f"there is no topic {topic!r} on these brokers: correct its name") from None
        partitions = [TopicPartition(topic, one.number) for one in described.partitions]
        begins, ends = _offsets(admin, partitions, "earliest"), _offsets(admin, partitions, "latest")
    if begins == ends:
        raise NoHistory(f"{topic} is empty: there is no history to plan from")
    return len(partitions)


def _offsets(admin: Admin, partitions: list[TopicPartition], reset: Literal["earliest", "latest"]) -> list[int]:
    return [position.offset for position in admin.offsets(partitions, reset).values() if position is not None]


def _history_query(request: PlanRequest, partitions: int) -> HistoryQuery:
    options = kafka_options(of_readers(request.properties))
    slots = local_slots(request.master)
    if slots is not None:  # so that a few partitions keep many cores busy
        options["minPartitions"] = str(slots)
    return HistoryQuery(request.topic, partitions, options, round(request.slot * 1_000), request.since, request.until)
