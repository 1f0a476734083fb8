"""The metrics of this process for OpenTelemetry: `pip install 'multilane[otel]'`, and an SDK with an exporter.

Thread: any. Reports come on the reporting thread; gauges are read on the thread of the SDK's reader.

Needs only the API: without an SDK nothing is measured. Instruments are named `multilane.` and the name in
`definitions`.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Observation

from multilane.metrics.definitions import BY_NAME, METRICS, MetricKind
from multilane.metrics.histogram import BOUNDS
from multilane.metrics.observer import Gauge, Observer

if TYPE_CHECKING:
    from opentelemetry.metrics import Histogram as HistogramInstrument
    from opentelemetry.metrics import Meter

_UNITS: Final = {"seconds": "s", "bytes": "By", "1": "1"}  # others are annotations, such as {records}


class OpenTelemetryMetrics(Observer):
    """
    >>> app = multilane.App("multilane.yaml", observer=OpenTelemetryMetrics())
    """

    def __init__(self, meter: Meter | None = None) -> None:
        """Without a meter: that of the global provider, which must be set before."""
        meter = meter or metrics.get_meter("multilane")
        self._lock = threading.Lock()
        self._gauges: dict[str, tuple[Gauge, ...]] = {}  # by source
        self._counters: dict[str, Callable[..., None]] = {}
        self._histograms: dict[str, HistogramInstrument] = {}
        for metric in METRICS:
            name, unit = f"multilane.{metric.name}", _UNITS.get(metric.unit, f"{{{metric.unit}}}")
            if metric.kind is MetricKind.COUNTER:
                self._counters[metric.name] = meter.create_counter(name, unit, metric.help).add
            elif metric.kind is MetricKind.HISTOGRAM:
                self._histograms[metric.name] = meter.create_histogram(
                    name, unit, metric.help, explicit_bucket_boundaries_advisory=BOUNDS
                )
            else:
                read = partial(self._read, metric.name)
                meter.create_observable_gauge(name, callbacks=[read], unit=unit, description=metric.help)

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        add = self._counters.get(name)
        if add is not None:
            add(value, labels)

    def duration(self, name: str, seconds: float, times: int = 1, **labels: str) -> None:
        histogram = self._histograms.get(name)
        for _ in range(0 if histogram is None else times):  # the API takes one value at a time
            histogram.record(seconds, labels)  # type: ignore[union-attr]

    def gauges(self, source: str, values: Iterable[Gauge]) -> None:
        known = tuple(gauge for gauge in values if gauge.name in BY_NAME)
        with self._lock:
            self._gauges[source] = known

    def _read(self, name: str, options: CallbackOptions) -> Iterable[Observation]:
        del options
        with self._lock:
            gauges = [gauge for known in self._gauges.values() for gauge in known if gauge.name == name]
        totals: Counter[tuple[tuple[str, str], ...]] = Counter()
        for gauge in gauges:
            totals[tuple(sorted(gauge.labels.items()))] += gauge.value  # type: ignore[assignment]
        return [Observation(value, dict(labels)) for labels, value in totals.items()]
