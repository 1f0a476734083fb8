"""One measurement of one Python client, in a process of its own: `python -m bench.child '<order as JSON>'`.

Thread: application.

Reads some records to warm up (loads kernels, connects), seeks back to the start, and times the passes over the whole
topic. Prints one line of JSON. The time includes the seek and everything that the client does before its first record.
"""

from __future__ import annotations

import json
import resource
import sys
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.clients import CLIENTS, Client, Source, Tally


@dataclass(frozen=True, slots=True)
class Order:
    """What to measure. `busy` runs a CPU-bound Python thread beside the client."""

    client: str
    source: dict[str, Any]
    records: int
    warm_records: int
    busy: bool = False
    passes: int = 1


def measure(order: Order) -> dict[str, Any]:
    client: Client = CLIENTS[order.client](Source(**order.source))
    try:
        client.rewind()
        client.read(order.warm_records, Tally())
        stop = _start_busy_thread() if order.busy else None
        tally = Tally()
        began, cpu = time.perf_counter(), time.process_time()
        for done in range(order.passes):
            client.rewind()
            client.read(order.records * (done + 1), tally)
        seconds, cpu_seconds = time.perf_counter() - began, time.process_time() - cpu
        if stop is not None:
            stop.set()
    finally:
        client.close()
    return {**asdict(tally), "seconds": seconds, "cpu_seconds": cpu_seconds, "peak_rss_bytes": peak_rss_bytes()}


def peak_rss_bytes() -> int:
    """The peak of this program alone: getrusage starts with the parent's size at the fork."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _start_busy_thread() -> threading.Event:
    """Pure Python that never waits: it releases the GIL only when it is forced to."""
    stop = threading.Event()

    def spin() -> None:
        number = 0
        while not stop.is_set():
            for _ in range(10_000):
                number = (number * 31 + 7) % 1_000_003

    threading.Thread(target=spin, name="busy", daemon=True).start()
    return stop


if __name__ == "__main__":
    print(json.dumps(measure(Order(**json.loads(sys.argv[1])))))
