"""Measures one system with all of its triggers, in a process of its own: its resources, or its deliveries flat out.

Thread: application.

Owns the child for one measurement. A log that was read to its end gives no rate: the system was not measured, the log
was.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Final

from bench.group import traffic
from bench.group.steering import Child, Event
from bench.share.order import Order

_START_SECONDS: Final = 120.0
_STOP_SECONDS: Final = 120.0
_RAMP_SECONDS: Final = 3.0
_TICK: Final = 0.02


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds: until a system has settled, and of each measurement."""

    settle: float
    idle: float
    load: float
    warm: float
    flat: float


@dataclass(frozen=True, slots=True)
class Resources:
    """Counts and memory are those of the idle time; CPU in cores."""

    threads: float
    network_threads: float
    connections: float
    resident_bytes: float
    idle_cpu: float
    load_cpu: float
    load_rate: float
    start: float
    stop: float


@dataclass(frozen=True, slots=True)
class FlatOut:
    """`rate`: deliveries per second, of all triggers together."""

    rate: float
    cpu: float
    resident_bytes: float
    start: float
    stop: float


def measure_resources(order: Order, partitions: int, rate: float, times: Times) -> Resources:
    """`rate`: records per second that are written, with every trigger's deliveries together."""
    with Child("bench.share.child", order.text()) as child:
        start = child.wait_event("started", _START_SECONDS)["seconds"]
        time.sleep(times.settle)
        before = look(child)
        time.sleep(times.idle)
        idle = look(child)
        written = traffic.Order(order.bootstrap, (order.topic,), partitions, rate / order.triggers, _TICK)
        with traffic.traffic(written):
            time.sleep(_RAMP_SECONDS)
            begin = look(child)
            time.sleep(times.load)
            end = look(child)
        stop = stopped(child)
    return Resources(
        threads=idle["threads"],
        network_threads=idle["network_threads"],
        connections=idle["connections"],
        resident_bytes=idle["resident_bytes"],
        idle_cpu=_per_second(before, idle, "cpu_seconds"),
        load_cpu=_per_second(begin, end, "cpu_seconds"),
        load_rate=_per_second(begin, end, "deliveries"),
        start=start,
        stop=stop,
    )


def measure_flat_out(order: Order, records: int, times: Times) -> FlatOut:
    """`records`: of the log, which is read from its beginning."""
    with Child("bench.share.child", order.text()) as child:
        start = child.wait_event("started", _START_SECONDS)["seconds"]
        time.sleep(times.warm)
        begin = look(child)
        time.sleep(times.flat)
        end = look(child)
        stop = stopped(child)
    check_log(end["furthest"], records)
    rate, cpu = (_per_second(begin, end, figure) for figure in ("deliveries", "cpu_seconds"))
    return FlatOut(rate, cpu, end["resident_bytes"], start, stop)


def check_log(furthest: int, records: int) -> None:
    if furthest >= records:
        raise RuntimeError(f"the log of {records:,} records ran dry: a trigger was faster than expected")


def look(child: Child) -> Event:
    child.tell("look")
    return child.wait_event("look")


def stopped(child: Child) -> float:
    child.tell("stop")
    return float(child.wait_event("stopped", _STOP_SECONDS)["seconds"])


def _per_second(before: Event, after: Event, figure: str) -> float:
    return float((after[figure] - before[figure]) / (after["at"] - before["at"]))
