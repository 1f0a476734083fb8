"""Produces records at an even pace, stamped with their send time: `python -m bench.latency.pace '<order as JSON>'`.

Thread: application.

In a process of its own, until its standard input is closed. Sends one record at a time, each at its own moment; a late
producer sends due records at once, stamped with the actual send time. Records the number and the time of each.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Final

from confluent_kafka import Producer

from bench.beside import beside, stop_at_end
from bench.lane.logs import CHUNK, VALUE_BYTES, Log, key_name
from bench.latency.samples import Notes, stamped

_FLUSH_SECONDS: Final = 30


@dataclass(frozen=True, slots=True)
class Pace:
    """`directory` is for the recorded times."""

    bootstrap: str
    topic: str
    partitions: int
    rate: float  # records per second, all partitions together
    directory: str


def write(pace: Pace, stop: threading.Event) -> None:
    notes = Notes(Path(pace.directory))
    notes.write_regularly()
    producer = Producer(
        {
            "bootstrap.servers": pace.bootstrap,
            "linger.ms": 1,
            "partitioner": "murmur2_random",
            "delivery.report.only.error": True,
        }
    )
    numbers = cycle(next(Log(pace.partitions, CHUNK).draws()).tolist())
    began, written = time.monotonic(), 0
    while not stop.is_set():
        due = int((time.monotonic() - began) * pace.rate)
        for number in range(written, due):
            sent = time.time_ns()
            producer.produce(pace.topic, stamped(sent, VALUE_BYTES), key_name(next(numbers)))
            notes.add(number, sent)
        written = due
        producer.poll(0)
        time.sleep(max(0.0, began + (written + 1) / pace.rate - time.monotonic()))
    if producer.flush(_FLUSH_SECONDS):
        raise RuntimeError(f"{pace.topic}: records were not acknowledged within {_FLUSH_SECONDS} s")


def paced(pace: Pace) -> AbstractContextManager[None]:
    return beside("bench.latency.pace", pace)


if __name__ == "__main__":
    write(Pace(**json.loads(sys.argv[1])), stop_at_end())
