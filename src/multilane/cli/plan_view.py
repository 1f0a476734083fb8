"""How `multilane plan` shows a plan: tables and bars for people, plain facts for programs.

Thread: application.

Keys come from anywhere: they are truncated, and control characters are escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rich.table import Table
from rich.text import Text

from multilane.cli.foreign_text import moment, payload
from multilane.cli.plan_advice import advice, assumptions, key_name, rate_text
from multilane.cli.tables import output, show_line, show_table
from multilane.config.app.units import format_duration

if TYPE_CHECKING:
    from multilane.cli.topic_plan import TopicPlan
    from multilane.config.app.consumer import ConsumerGroupConfig

_BAR: Final = 40
_MOST_PARTITIONS: Final = 24
_MOST_KEYS: Final = 8
_UNITS: Final = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))


def show(plan: TopicPlan, consumer: ConsumerGroupConfig | None = None) -> None:
    """`consumer` is the current configuration of the topic."""
    console = output()
    for line in _head(plan):
        show_line(console, line)
    show_table(console, _settings(plan, consumer))
    bar = "#" if console.options.ascii_only else "\u2588"
    for title, rows in (_partitions(plan), _lanes(plan)):
        show_table(console, _chart(title, list(rows), bar))
    if plan.history.heaviest:
        show_table(console, _keys(plan))
    for line in advice(plan):
        show_line(console, f"! {line}")
    for line in assumptions(plan):
        show_line(console, line, "dim")


def _head(plan: TopicPlan) -> Iterator[str]:
    past = plan.history
    size = next((f"{past.size / unit:,.1f} {name}" for unit, name in _UNITS if past.size >= unit), f"{past.size} bytes")
    yield f"{past.topic}: {past.records:,} records ({size}) in {past.partitions} partitions"
    yield f"from {moment(past.first)} to {moment(past.last)}"
    slot = format_duration(past.slot)
    peak = f"{rate_text(past.peak)} in the busiest {slot}, starting at {moment(past.busiest.begin)}"
    yield f"arrivals: {rate_text(past.average)} on average, {peak}"


def _settings(plan: TopicPlan, consumer: ConsumerGroupConfig | None) -> Table:
    table = Table(title="recommended", title_justify="left")
    table.add_column("setting", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    if consumer is not None:
        table.add_column("now", justify="right", no_wrap=True)
    table.add_column("why")
    now = {"partitions": str(plan.history.partitions)}
    if consumer is not None:
        now |= {"virtualPartitionCount": str(consumer.lanes), "batchSize": str(consumer.batch_size)}
        now |= {"consumeBatchListenerLatency": format_duration(consumer.batch_latency)}
    for name, value, why in _values(plan):
        row = [name, value, why] if consumer is None else [name, value, now.get(name, ""), why]
        table.add_row(*map(Text, row))
    return table


def _values(plan: TopicPlan) -> Iterator[tuple[str, str, str]]:
    recommended, goals = plan.recommended, plan.goals
    work = goals.work(recommended.batch)
    lanes = recommended.rate * work.latency / work.batch
    yield (
        "virtualPartitionCount",
        str(recommended.lanes),
        f"{rate_text(recommended.rate)} in one partition keep {lanes:,.1f} lanes busy; 99 of 100 records wait at most "
        f"{_milliseconds(recommended.lane_wait)} for a lane and {_milliseconds(recommended.key_wait)} for their key",
    )
    yield "batchSize", str(recommended.batch), _why_batch(plan)
    if recommended.batch > 1:
        yield "consumeBatchListenerLatency", format_duration(work.fill), "half the time that records may wait"
    share = goals.process_share(recommended.rate, recommended.batch)
    yield (
        "consumers",
        str(recommended.consumers),
        f"processes, or members on Spark; the busiest partition takes {share:.1%} of one",
    )
    current = plan.history.partitions
    why = f"currently {current}" if recommended.partitions > current else "no change needed"
    yield "partitions", str(recommended.partitions), why


def _why_batch(plan: TopicPlan) -> str:
    recommended = plan.recommended
    if recommended.batch == 1:
        return "single records"
    if any(hot.is_too_hot and hot.batch == recommended.batch for hot in recommended.hot_keys):
        return "one key is too hot for single records"
    return "single records would need more lanes or processes than are allowed"


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1_000:,.0f} ms"


# --- charts ----------------------------------------------------------------------------------------------------------

_Row = tuple[str, float, str]  # a name, the length of its bar, and the text behind it


def _partitions(plan: TopicPlan) -> tuple[str, Iterator[_Row]]:
    past = plan.history
    loads = {load.partition: load for load in past.loads}
    shown = sorted(range(past.partitions), key=lambda n: -loads[n].records if n in loads else 0)[:_MOST_PARTITIONS]
    left = past.partitions - len(shown)

    def rows() -> Iterator[_Row]:
        for number in sorted(shown):
            load = loads.get(number)
            if load is None:
                yield str(number), 0, "no records"
                continue
            peak = rate_text(past.rate(load.busiest.records))
            yield str(number), load.records, f"{load.records:,} records, {load.keys:,} keys, peak {peak}"

    return "load by partition" + (f" (the heaviest; {left} more)" if left else ""), rows()


def _lanes(plan: TopicPlan) -> tuple[str, Iterator[_Row]]:
    recommended = plan.recommended

    def rows() -> Iterator[_Row]:
        for lanes, rate in recommended.throughputs:
            mark = "  <- recommended" if lanes == recommended.lanes else ""
            yield str(lanes), rate, f"{rate_text(rate)}{mark}"
        yield "needed", recommended.rate, rate_text(recommended.rate)

    partition = plan.history.heaviest_load.partition
    return f"throughput by lanes, simulated with the keys of partition {partition}", rows()


def _chart(title: str, rows: list[_Row], bar: str) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, pad_edge=False)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(min_width=_BAR, no_wrap=True)
    table.add_column(overflow="fold")
    most = max(value for _, value, _ in rows) or 1
    for name, value, text in rows:
        length = max(round(value / most * _BAR), 1 if value else 0)
        table.add_row(Text(name), Text(bar * length), Text(text))
    return table


def _keys(plan: TopicPlan) -> Table:
    past, goals = plan.history, plan.goals
    table = Table(title="heaviest keys", title_justify="left", box=None, pad_edge=False)
    for heading in ("key", "partition", "records", "share", "peak", "of a lane"):
        table.add_column(heading, justify="left" if heading == "key" else "right")
    for key in past.heaviest[:_MOST_KEYS]:
        rate = past.rate(key.peak) * goals.peak_factor
        share, busy = f"{key.records / past.records:.1%}", f"{rate * goals.latency:.0%}"
        table.add_row(
            *map(Text, (key_name(key.key), str(key.partition), f"{key.records:,}", share, rate_text(rate), busy))
        )
    return table


# --- facts -----------------------------------------------------------------------------------------------------------


def facts(plan: TopicPlan, consumer: ConsumerGroupConfig | None = None) -> dict[str, Any]:
    past, recommended = plan.history, plan.recommended
    made: dict[str, Any] = {
        "topic": past.topic,
        "recommended": {
            "virtualPartitionCount": recommended.lanes,
            "batchSize": recommended.batch,
            "consumers": recommended.consumers,
            "partitions": recommended.partitions,
        },
        "met": recommended.is_met,
        "history": {
            "records": past.records,
            "bytes": past.size,
            "without_key": past.unkeyed,
            "first": moment(past.first),
            "last": moment(past.last),
            "partitions": past.partitions,
            "slot_seconds": past.slot,
            "average_rate": past.average,
            "peak_rate": past.peak,
            "peak_at": moment(past.busiest.begin),
            "loads": list(_load_facts(plan)),
            "heaviest_keys": list(_key_facts(plan)),
        },
        "simulated": {
            "partition": past.heaviest_load.partition,
            "records": len(plan.arrivals),
            "rate": recommended.rate,
            "lane_wait_seconds_p99": recommended.lane_wait,
            "key_wait_seconds_p99": recommended.key_wait,
            "throughputs": [{"lanes": lanes, "rate": rate} for lanes, rate in recommended.throughputs],
        },
        "goals": asdict(plan.goals),
        "advice": advice(plan),
        "assumptions": assumptions(plan),
    }
    if recommended.batch > 1:
        made["recommended"]["consumeBatchListenerLatency"] = format_duration(plan.goals.work(recommended.batch).fill)
    if consumer is not None:
        made["now"] = {"virtualPartitionCount": consumer.lanes, "batchSize": consumer.batch_size}
    return made


def _load_facts(plan: TopicPlan) -> Iterable[dict[str, Any]]:
    for load in plan.history.loads:
        yield {
            "partition": load.partition,
            "records": load.records,
            "bytes": load.size,
            "keys": load.keys,
            "without_key": load.unkeyed,
            "first": moment(load.first),
            "last": moment(load.last),
            "peak_rate": plan.history.rate(load.busiest.records),
            "peak_at": moment(load.busiest.begin),
        }


def _key_facts(plan: TopicPlan) -> Iterable[dict[str, Any]]:
    hot = {one.key: one for one in plan.recommended.hot_keys}
    for key in plan.history.heaviest:
        found = hot.get(key)
        yield {
            "key": payload(key.key),
            "partition": key.partition,
            "records": key.records,
            "peak_rate": plan.history.rate(key.peak),
            "too_hot": found is not None and found.is_too_hot,
        }
