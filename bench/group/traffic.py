"""Produces records at a steady rate, in a process of its own: `python -m bench.group.traffic '<order as JSON>'`.

Thread: application.

Writes until its standard input is closed. Every tick writes its records, spread evenly over all partitions in turn; a
late tick is made up for at once.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from confluent_kafka import Producer

from bench.beside import beside, stop_at_end

VALUE: Final = b"x" * 100


@dataclass(frozen=True, slots=True)
class Order:
    bootstrap: str
    topics: Sequence[str]
    partitions: int
    rate: float  # records per second, all partitions together
    tick: float  # seconds


def write(order: Order, stop: threading.Event) -> int:
    """Writes until it is stopped; returns how many records were written."""
    producer = Producer({"bootstrap.servers": order.bootstrap, "linger.ms": 1, "delivery.report.only.error": True})
    places = cycle([(topic, partition) for partition in range(order.partitions) for topic in order.topics])
    written = ticks = 0
    began = time.monotonic()
    while not stop.wait(max(0.0, began + (ticks + 1) * order.tick - time.monotonic())):
        ticks = int((time.monotonic() - began) / order.tick)
        due = round(ticks * order.tick * order.rate)  # whole ticks: each partition gets its record in every one
        for topic, partition in (next(places) for _ in range(due - written)):
            producer.produce(topic, VALUE, partition=partition)
        written = due
        producer.poll(0)
    producer.flush(30)
    return written


def traffic(order: Order) -> AbstractContextManager[None]:
    return beside("bench.group.traffic", order)


if __name__ == "__main__":
    write(Order(**json.loads(sys.argv[1])), stop_at_end())
