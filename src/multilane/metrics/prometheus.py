"""The metrics of this process for Prometheus: `pip install 'multilane[prometheus]'`.

Thread: any. `count` runs on the reporting thread, `collect` on the scraping thread.

Keeps totals of the metrics in `definitions` and exports them under names such as
`multilane_lanes_records_settled_total`. Owns the totals. Never blocks a component for longer than an addition.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from multilane.metrics.definitions import BY_NAME, METRICS, Metric

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

_IN_NAMES: Final = frozenset({"bytes", "seconds"})  # units that Prometheus expects at the end of a name


def prometheus_name(metric: Metric) -> str:
    """Without the suffix `_total`, which the client library appends to counters."""
    name = "multilane_" + metric.name.replace(".", "_")
    return f"{name}_{metric.unit}" if metric.unit in _IN_NAMES and not name.endswith(metric.unit) else name


class PrometheusObserver:
    """
    >>> observer = PrometheusObserver()
    >>> prometheus_client.REGISTRY.register(observer)
    >>> app = multilane.App("multilane.yaml", observer=observer)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: Counter[tuple[str, tuple[str, ...]]] = Counter()

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        metric = BY_NAME.get(name)
        if metric is None:
            return  # the application's own metric: it has its own exporter
        values = tuple(labels.get(label, "") for label in metric.labels)
        with self._lock:
            self._totals[name, values] += value  # type: ignore[assignment]

    def collect(self) -> Iterator[Family]:
        from prometheus_client.core import CounterMetricFamily

        with self._lock:
            totals = dict(self._totals)
        for metric in METRICS:
            family = CounterMetricFamily(prometheus_name(metric), metric.help, labels=metric.labels)
            for (name, values), total in totals.items():
                if name == metric.name:
                    family.add_metric(values, total)
            yield family
