"""The metrics of this process for Prometheus: `pip install 'multilane[prometheus]'`.

Thread: any. Reports come on the reporting thread, `collect` runs on the scraping thread.

Keeps the metrics of `definitions` and exports them under names such as
`multilane_lanes_records_settled_total`. Owns the totals. Never blocks a component for longer than an addition.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeVar

from multilane.metrics.definitions import BY_NAME, METRICS, Metric, MetricKind
from multilane.metrics.histogram import BOUNDS, Histogram
from multilane.metrics.observer import Gauge, Observer

if TYPE_CHECKING:
    from prometheus_client.core import Metric as Family

T = TypeVar("T")
Series = tuple[str, tuple[str, ...]]  # the name of a metric and the values of its labels
_IN_NAMES: Final = frozenset({"bytes", "seconds"})  # units that Prometheus expects at the end of a name


def prometheus_name(metric: Metric) -> str:
    """Without the suffix `_total`, which the client library appends to counters."""
    name = "multilane_" + metric.name.replace(".", "_")
    return f"{name}_{metric.unit}" if metric.unit in _IN_NAMES and not name.endswith(metric.unit) else name


class PrometheusObserver(Observer):
    """
    >>> observer = PrometheusObserver()
    >>> prometheus_client.REGISTRY.register(observer)
    >>> app = multilane.App("multilane.yaml", observer=observer)
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._totals: Counter[Series] = Counter()
        self._durations: dict[Series, Histogram] = {}
        self._gauges: dict[str, tuple[Gauge, ...]] = {}  # by source

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        series = _series(name, labels)
        if series is not None:
            with self._lock:
                self._totals[series] += value  # type: ignore[assignment]

    def duration(self, name: str, seconds: float, times: int = 1, **labels: str) -> None:
        series = _series(name, labels)
        if series is not None:
            with self._lock:
                self._durations.setdefault(series, Histogram()).add(seconds, times)

    def gauges(self, source: str, values: Iterable[Gauge]) -> None:
        known = tuple(values)
        with self._lock:
            self._gauges[source] = known

    def collect(self) -> Iterator[Family]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        with self._lock:
            totals = dict(self._totals)
            durations = {series: tuple(_buckets(known)) for series, known in self._durations.items()}
            sums = {series: known.total for series, known in self._durations.items()}
            values: Counter[Series] = Counter()
            for gauge in (gauge for gauges in self._gauges.values() for gauge in gauges):
                if (series := _series(gauge.name, gauge.labels)) is not None:
                    values[series] += gauge.value  # type: ignore[assignment]
        for metric in METRICS:
            name, labels = prometheus_name(metric), metric.labels
            if metric.kind is MetricKind.COUNTER:
                counter = CounterMetricFamily(name, metric.help, labels=labels)
                for label_values, total in _of(metric, totals):
                    counter.add_metric(label_values, total)
                yield counter
            elif metric.kind is MetricKind.GAUGE:
                level = GaugeMetricFamily(name, metric.help, labels=labels)
                for label_values, value in _of(metric, values):
                    level.add_metric(label_values, value)
                yield level
            else:
                histogram = HistogramMetricFamily(name, metric.help, labels=labels)
                for label_values, buckets in _of(metric, durations):
                    histogram.add_metric(label_values, buckets, sums[metric.name, label_values])
                yield histogram


def _series(name: str, labels: Mapping[str, str]) -> Series | None:
    """None for the application's own metrics: it has its own exporter."""
    metric = BY_NAME.get(name)
    return None if metric is None else (name, tuple(labels.get(label, "") for label in metric.labels))


def _of(metric: Metric, by_series: Mapping[Series, T]) -> Iterator[tuple[tuple[str, ...], T]]:
    return ((labels, value) for (name, labels), value in by_series.items() if name == metric.name)


def _buckets(histogram: Histogram) -> Iterator[tuple[str, int]]:
    """Cumulative, as Prometheus wants them."""
    yield from zip((*map(str, BOUNDS), "+Inf"), accumulate(histogram.counts), strict=True)
