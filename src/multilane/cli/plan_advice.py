"""The sentences of a plan: keys that are too hot for lanes, uneven loads, and the plan's assumptions.

Thread: none (pure).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from multilane.cli.foreign_text import escaped
from multilane.config.app.units import format_duration

if TYPE_CHECKING:
    from multilane.cli.topic_plan import TopicPlan
    from multilane.sizing.recommendation import HotKey

_LONGEST_KEY: Final = 60
_UNEVEN: Final = 2.0  # times the average
_SHORT: Final = 6  # slots
_DEFAULT_PROCESSING_TIME: Final = 1.0  # seconds: the default of maxProcessingTime


def key_name(key: bytes) -> str:
    return escaped(key, _LONGEST_KEY)


def rate_text(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:.2g}/s"


def advice(plan: TopicPlan) -> list[str]:
    """Sentences, the most important first."""
    return [*_of_keys(plan), *_of_partitions(plan), *_of_the_rest(plan)]


def assumptions(plan: TopicPlan) -> list[str]:
    """The assumptions behind the numbers, in two lines."""
    goals, history = plan.goals, plan.history
    slot, busiest = format_duration(history.slot), history.heaviest_load
    batch = ", with one record or a batch" if plan.recommended.batch > 1 else ""
    part = "all" if len(plan.arrivals) == busiest.busiest.records else f"the first {len(plan.arrivals):,}"
    return [
        f"Simulated: {part} of the {busiest.busiest.records:,} records in the busiest {slot} of partition "
        f"{busiest.partition} as they arrived, at {rate_text(plan.recommended.rate)}; every call takes "
        f"{format_duration(goals.latency)}{batch}, and nothing fails.",
        f"Goals: lanes and processes are busy at most {goals.utilisation:.0%} of the time; 99 of 100 records wait at "
        f"most {format_duration(goals.wait)} for a lane; a process makes {goals.process_calls:,.0f} calls/s with "
        f"{goals.process_records:,.0f} records/s.",
    ]


def _of_keys(plan: TopicPlan) -> Iterator[str]:
    for hot in plan.recommended.hot_keys:
        name = f"Key {key_name(hot.key.key)} of partition {hot.key.partition}"
        if hot.is_too_hot:
            yield f"{name} {_too_hot(plan, hot)}"
        else:
            yield f"{name} takes {hot.busy:.0%} of a lane's time at its peak and has little room to grow."


def _too_hot(plan: TopicPlan, hot: HotKey) -> str:
    possible = rate_text(1 / plan.goals.latency)
    if hot.batch is not None:
        remedy = f"A function that takes batches helps: batchSize {hot.batch}, if a call takes no longer with it."
    else:
        remedy = f"Even a batchSize of {plan.goals.batches[-1]} does not help."
    return (
        f"gets {rate_text(hot.rate)} at its peak, but one record at a time allows only {possible}: no number of lanes "
        f"helps, and the whole partition falls behind. {remedy} Otherwise use a finer key, a faster function, "
        "uniqueListener if only the newest record of a key matters, or orderBy none if order does not."
    )


def _of_partitions(plan: TopicPlan) -> Iterator[str]:
    history, recommended = plan.history, plan.recommended
    load = history.heaviest_load
    if not recommended.is_met:
        yield (
            f"Partition {load.partition} exceeds {plan.goals.most_lanes} lanes or one process, although the topic as a "
            "whole does not: spread its keys, or allow more with --max-lanes and --max-batch."
        )
    if recommended.partitions > history.partitions:
        yield (
            "Adding partitions moves keys: records of a key may be handled out of order across the change, unless all "
            "existing records are handled first."
        )
    times = load.records * history.partitions / history.records
    if history.partitions > 1 and times > _UNEVEN:
        yield (
            f"Partition {load.partition} has {times:.1f} times the average load: every partition gets as many lanes as "
            "this one needs."
        )


def _of_the_rest(plan: TopicPlan) -> Iterator[str]:
    history = plan.history
    if history.unkeyed:
        share = history.unkeyed / history.records
        yield f"{share:.1%} of the records have no key: they are unordered, and any lane takes them."
    if 2 * plan.goals.latency > _DEFAULT_PROCESSING_TIME:
        yield "maxProcessingTime limits each call (default: 1s): set it well above the latency."
    seconds = (history.last - history.first) / 1_000
    if seconds < _SHORT * history.slot:
        yield f"The history covers only {seconds:,.0f} s: it may not represent other times."
