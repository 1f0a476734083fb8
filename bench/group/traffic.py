"""Records at a steady pace, from a process of its own: `python -m bench.group.traffic '<order as JSON>'`.

Thread: application.

Writes until its standard input is closed. Every tick has the records of that tick, spread evenly over all partitions in
turn; a tick that comes late is made up for at once.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Final

from confluent_kafka import Producer

from bench.group.steering import ROOT

VALUE: Final = b"x" * 100


@dataclass(frozen=True, slots=True)
class Order:
    bootstrap: str
    topics: Sequence[str]
    partitions: int
    rate: float  # records a second, all partitions together
    tick: float  # seconds


def write(order: Order, stop: threading.Event) -> int:
    """Until told to stop; how many records were written."""
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


@contextmanager
def traffic(order: Order) -> Iterator[None]:
    arguments = [sys.executable, "-m", "bench.group.traffic", json.dumps(asdict(order))]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, cwd=ROOT) as process:
        yield
        early = process.poll()
        process.communicate(timeout=60)
    if early is not None or process.returncode != 0:
        raise RuntimeError(f"the producer ended with {process.returncode}")


def main(text: str) -> None:
    stop = threading.Event()

    def wait_for_the_end() -> None:
        sys.stdin.read()
        stop.set()

    threading.Thread(target=wait_for_the_end, name="stdin", daemon=True).start()
    print(write(Order(**json.loads(text)), stop))


if __name__ == "__main__":
    main(sys.argv[1])
