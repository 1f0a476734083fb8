"""One system under an even load: the latencies of its records, and its resources meanwhile.

Thread: application.

The producer starts before the system, so the system starts with a backlog, which it has handled when it is warm.
Afterwards the bench waits for all records sent in the period: leaving them out would leave out the slowest.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.lane.order import Drained, Order, Tick
from bench.lane.sampling import Figures, Span, Window, child, sample_of
from bench.latency.pace import Pace, paced
from bench.latency.samples import Latencies, Stretch, latencies, read_pairs

GRACE_SECONDS: Final = 10.0
MODULES: Final = "bench.latency"


@dataclass(frozen=True, slots=True)
class Measured:
    latencies: Latencies
    figures: Figures


def measure(order: Order, arguments: list[str], span: Span, rate: float) -> Measured:
    """`arguments`: the module of the child, and its arguments besides order and directory."""
    module, *rest = arguments
    with tempfile.TemporaryDirectory(prefix="multilane-bench-") as work:
        sent, handled = Path(work, "sent"), Path(work, "handled")
        sent.mkdir()
        handled.mkdir()
        command = [sys.executable, "-m", f"{MODULES}.{module}", order.text(), str(handled), *rest]
        pace = Pace(order.bootstrap, order.topic, order.partitions, rate, str(sent))
        with paced(pace), child(command, span.patience + GRACE_SECONDS) as (process, events):
            window = Window(span)
            stretch = _steady(window, process.pid, events)
            return Measured(_settled(stretch, sent, handled, events), window.figures())


def _steady(window: Window, pid: int, events: Iterator[Tick | Drained]) -> Stretch:
    began: int | None = None
    for event in events:
        sample = sample_of(pid, event) if isinstance(event, Tick) else None
        if sample is None:
            continue
        is_over, now = window.add(sample), time.time_ns()
        if window.is_open and began is None:
            began = now
        if is_over and began is not None:
            return Stretch(began, now)
    raise AssertionError("a child that ends was reported")


def _settled(stretch: Stretch, sent: Path, handled: Path, events: Iterator[Tick | Drained]) -> Latencies:
    """Returns when all records sent in the period are handled, or after a timeout."""
    patience = time.monotonic() + GRACE_SECONDS
    for _ in events:  # which also keeps the child from waiting for a reader
        now = time.time_ns()
        found = latencies(read_pairs(handled), read_pairs(sent)[:, 1], stretch, now)
        if not found.missing or time.monotonic() > patience:
            return found
    raise AssertionError("a child that ends was reported")
