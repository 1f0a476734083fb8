"""Many consumers in one process: the figures of one child process.

Thread: application.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from bench.group import traffic
from bench.group.crowd_child import GIVE_UP_SECONDS, Order
from bench.group.steering import Child
from bench.group.systems import System


@dataclass(frozen=True, slots=True)
class Setting:
    """A crowd: how many consumers, on which topics, for how long. With a rate, records arrive after the idle time."""

    consumers: int
    topics: tuple[str, ...]
    partitions: int
    poll_seconds: float
    settle_seconds: float
    idle_seconds: float
    load_seconds: float = 0.0
    written_rate: float = 0.0  # records per second, by the producer

    def order(self, system: System, bootstrap: str) -> Order:
        group = f"bench-{uuid.uuid4().hex[:12]}"
        waits = (self.poll_seconds, self.settle_seconds, self.idle_seconds, self.load_seconds)
        return Order(system.name, bootstrap, group, self.topics, self.consumers, *waits)


@dataclass(frozen=True, slots=True)
class Crowded:
    """Memory in bytes above the named baseline; CPU as a share of a core."""

    threads: float
    network_threads: float
    connections: float
    above_imports: float
    above_one: float
    idle_cpu: float
    load_cpu: float | None = None
    load_rate: float | None = None


def measure_crowd(system: System, bootstrap: str, setting: Setting) -> Crowded:
    order = setting.order(system, bootstrap)
    patience = GIVE_UP_SECONDS * (2 + setting.consumers / 100) + setting.idle_seconds + 2 * setting.settle_seconds
    with Child("bench.group.crowd_child", json.dumps(asdict(order))) as child:
        idle = child.wait_event("idle", patience)
        check_members(bootstrap, order)
        load = None
        if setting.load_seconds:
            written = traffic.Order(bootstrap, setting.topics, setting.partitions, setting.written_rate, 0.02)
            with traffic.traffic(written):
                child.tell("go on")
                load = child.wait_event("load", GIVE_UP_SECONDS + setting.load_seconds)
        else:
            child.tell("go on")
        child.wait_event("end")
    return crowded_of(idle, load)


def check_members(bootstrap: str, order: Order) -> None:
    """Checks that every group is stable with a member: an expelled consumer would use little, too."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    listed = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(30)
    stable = sum(group.group_id.startswith(f"{order.group}-") for group in listed.valid)
    if stable != order.consumers:
        raise RuntimeError(f"{stable} of {order.consumers} groups are stable")


def crowded_of(idle: dict[str, Any], load: dict[str, Any] | None) -> Crowded:
    """Counters are those of the quiet time; records only show the load of the busy time."""
    return Crowded(
        threads=idle["threads"],
        network_threads=idle["network_threads"],
        connections=idle["connections"],
        above_imports=idle["resident_bytes"] - idle["imported"],
        above_one=idle["resident_bytes"] - idle["alone"],
        idle_cpu=idle["cpu_seconds"] / idle["seconds"],
        load_cpu=None if load is None else load["cpu_seconds"] / load["seconds"],
        load_rate=None if load is None else load["records"] / load["seconds"],
    )
