"""From `subscribe` to the first record: the figures of one process.

Thread: application.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import asdict, dataclass
from typing import Any

from bench.group.member_child import Order
from bench.group.steering import Child
from bench.group.systems import Seat, System
from bench.java import JavaProgram


@dataclass(frozen=True, slots=True)
class Startup:
    """Seconds. The process counts from its start (for Java: the JVM's), including imports."""

    cold: float
    warm: float
    cold_with_constructor: float
    warm_with_constructor: float
    from_process_start: float


def startup_of(told: dict[str, Any]) -> Startup:
    cold, warm = told["cold"], told["warm"]
    return Startup(
        cold=cold["first"] - cold["subscribed"],
        warm=warm["first"] - warm["subscribed"],
        cold_with_constructor=cold["first"] - cold["created"],
        warm_with_constructor=warm["first"] - warm["created"],
        from_process_start=cold["first"] - told["began"],
    )


def measure_startup(system: System, bootstrap: str, topic: str, java: JavaProgram) -> Startup:
    seat = Seat(bootstrap, f"bench-{uuid.uuid4().hex[:12]}", topic)
    order = Order(system.name, asdict(seat), time.time(), (str(java.program), java.classpath))
    with Child("bench.group.member_child", "startup", json.dumps(asdict(order))) as child:
        return startup_of(child.wait_event("end"))
