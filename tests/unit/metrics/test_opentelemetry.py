"""Metrics as an OpenTelemetry SDK reads them."""

from __future__ import annotations

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from multilane.metrics.definitions import METRICS
from multilane.metrics.observer import Gauge
from multilane.metrics.opentelemetry import OpenTelemetryMetrics


class Exported:
    def __init__(self):
        self._reader = InMemoryMetricReader()
        self.observer = OpenTelemetryMetrics(MeterProvider([self._reader]).get_meter("test"))

    def read(self):
        data = self._reader.get_metrics_data()
        if data is None:
            return {}
        return {m.name: m for r in data.resource_metrics for scope in r.scope_metrics for m in scope.metrics}


def test_counts_durations_and_gauges_arrive():
    exported = Exported()
    exported.observer.count("lanes.records.settled", 3, consumer="orders")
    exported.observer.count("lanes.records.settled", 2, consumer="orders")
    exported.observer.count("shop.orders", 2)
    exported.observer.duration("lanes.call.duration", 0.02, 3, consumer="orders")
    exported.observer.gauges("0", [Gauge("lanes.records.waiting", {"consumer": "orders"}, 4)])
    exported.observer.gauges("1", [Gauge("lanes.records.waiting", {"consumer": "orders"}, 5)])
    found = exported.read()
    assert set(found) == {
        "multilane.lanes.records.settled",
        "multilane.lanes.call.duration",
        "multilane.lanes.records.waiting",
    }
    (settled,) = found["multilane.lanes.records.settled"].data.data_points
    assert (settled.value, dict(settled.attributes)) == (5, {"consumer": "orders"})
    calls = found["multilane.lanes.call.duration"]
    assert (calls.unit, calls.data.data_points[0].count) == ("s", 3)
    assert [point.value for point in found["multilane.lanes.records.waiting"].data.data_points] == [9]
    exported.observer.gauges("0", [])
    assert [p.value for p in exported.read()["multilane.lanes.records.waiting"].data.data_points] == [5]


def test_every_definition_is_an_instrument():
    exported = Exported()
    for metric in METRICS:
        labels = dict.fromkeys(metric.labels, "x")
        exported.observer.count(metric.name, 1, **labels)
        exported.observer.duration(metric.name, 1.0, **labels)
        exported.observer.gauges(metric.name, [Gauge(metric.name, labels, 1)])
    found = exported.read()
    assert set(found) == {f"multilane.{metric.name}" for metric in METRICS}
    assert all(found[f"multilane.{metric.name}"].description == metric.help for metric in METRICS)
