"""One system with all of its triggers: `python -m bench.share.child '<order as JSON>'`.

Thread: application; a thread of the benchmark reads commands.

Reports how long it took until every trigger had a record, then answers each `look` with its counts and resources, and
`stop` with the time that it took to stop. It stops too when its input is closed.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol

from bench.group import process
from bench.share.order import AIOKAFKA, OURS, Order

_LOOK_SECONDS: Final = 0.02


class Running(Protocol):
    """A system. `counts` has the deliveries of each trigger."""

    counts: list[int]

    def run(self) -> None:
        """Returns after `stop`."""

    def stop(self) -> None:
        """From any thread."""


def made(order: Order) -> Callable[[], Running]:
    """All imports are done when this returns; the system itself begins with the call of what it returns."""
    if order.system in OURS:
        from bench.share.ours import OurApp

        logging.getLogger("multilane").setLevel(logging.ERROR)  # a warning for each trigger: failures are dropped
        return lambda: OurApp(order)
    if order.system == AIOKAFKA:
        from bench.share.rivals import AiokafkaTasks

        return lambda: AiokafkaTasks(order)
    from bench.share.rivals import ConfluentThreads

    return lambda: ConfluentThreads(order)


class Control:
    """The benchmark's own thread."""

    def __init__(self, order: Order, running: Running, began: float, imported: int) -> None:
        self._order = order
        self._running = running
        self._began = began
        self._imported = imported
        self.stopped_at = 0.0

    def run(self) -> None:
        while not all(self._running.counts[: self._order.triggers]):
            time.sleep(_LOOK_SECONDS)
        tell("started", seconds=time.monotonic() - self._began, imported=self._imported)
        for line in sys.stdin:
            if line.strip() == "stop":
                break
            self._look()
        self.stopped_at = time.monotonic()
        self._running.stop()

    def _look(self) -> None:
        counts = self._running.counts[: self._order.triggers]
        tell(
            "look",
            at=time.monotonic(),
            cpu_seconds=time.process_time(),
            deliveries=sum(counts),
            furthest=max(counts),
            threads=process.thread_count() - 1,  # without this one
            network_threads=sum(t.name.startswith("multilane-network-") for t in threading.enumerate()),
            connections=process.connections([self._order.port])[self._order.port],
            resident_bytes=process.resident_bytes(),
        )


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def main(order: Order) -> None:
    make = made(order)
    imported, began = process.resident_bytes(), time.monotonic()
    running = make()
    control = Control(order, running, began, imported)
    threading.Thread(target=control.run, name="bench control", daemon=True).start()
    running.run()
    tell("stopped", seconds=time.monotonic() - control.stopped_at)


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
