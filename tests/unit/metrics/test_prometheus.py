"""Metrics as Prometheus reads them."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from multilane.metrics.definitions import METRICS
from multilane.metrics.observer import Gauge
from multilane.metrics.prometheus import PrometheusObserver, prometheus_name


def scraped(observer: PrometheusObserver) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    registry = CollectorRegistry()
    registry.register(observer)
    families = text_string_to_metric_families(generate_latest(registry).decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_counts_add_up_by_their_labels():
    observer = PrometheusObserver()
    observer.count("lanes.records.settled", 3, consumer="orders")
    observer.count("lanes.records.settled", 2, consumer="orders")
    observer.count("lanes.records.settled", 1, consumer="bills")
    observer.count("rebootstrap")
    assert scraped(observer) == {
        ("multilane_lanes_records_settled_total", (("consumer", "orders"),)): 5,
        ("multilane_lanes_records_settled_total", (("consumer", "bills"),)): 1,
        ("multilane_rebootstrap_total", ()): 1,
    }


def test_units_are_part_of_a_name_once():
    observer = PrometheusObserver()
    observer.count("fetch.bytes", 10, broker="1")
    observer.count("throttle.seconds", 0.5, broker="1")
    names = {name for name, _ in scraped(observer)}
    assert names == {"multilane_fetch_bytes_total", "multilane_throttle_seconds_total"}


def test_what_is_not_defined_is_not_exported():
    observer = PrometheusObserver()
    observer.count("shop.orders", 1, customer="4711")
    assert scraped(observer) == {}


def test_a_label_that_was_not_given_is_empty():
    observer = PrometheusObserver()
    observer.count("lanes.outage", consumer="orders")
    assert scraped(observer) == {("multilane_lanes_outage_total", (("consumer", "orders"), ("state", ""))): 1}


def test_durations_are_histograms():
    observer = PrometheusObserver()
    observer.duration("lanes.call.duration", 0.004, 2, consumer="orders")
    observer.duration("lanes.call.duration", 400.0, consumer="orders")
    found = scraped(observer)
    name, orders = "multilane_lanes_call_duration_seconds", ("consumer", "orders")
    buckets = {dict(labels)["le"]: value for (known, labels), value in found.items() if known == f"{name}_bucket"}
    assert (buckets["0.0025"], buckets["0.005"], buckets["300.0"], buckets["+Inf"]) == (0, 2, 2, 3)
    assert found[f"{name}_count", (orders,)] == 3
    assert found[f"{name}_sum", (orders,)] == pytest.approx(400.008)


def test_gauges_of_all_sources_add_up_and_go_with_their_source():
    observer = PrometheusObserver()
    waiting, orders = "lanes.records.waiting", {"consumer": "orders"}
    lag = Gauge("partition.lag", {**orders, "topic": "orders", "partition": "3"}, 7)
    observer.gauges("0", [Gauge(waiting, orders, 5), lag])
    observer.gauges("1", [Gauge(waiting, orders, 2), Gauge("shop.gauge", {}, 1)])
    series = ("multilane_lanes_records_waiting", (("consumer", "orders"),))
    assert scraped(observer)[series] == 7
    observer.gauges("0", [Gauge(waiting, orders, 1)])
    assert scraped(observer) == {series: 3}
    observer.gauges("1", [])
    assert scraped(observer) == {series: 1}


def test_every_definition_can_be_exported():
    observer = PrometheusObserver()
    for metric in METRICS:
        labels = dict.fromkeys(metric.labels, 'a "quoted"\nvalue')
        observer.count(metric.name, 1, **labels)
        observer.duration(metric.name, 1.0, **labels)
        observer.gauges(metric.name, [Gauge(metric.name, labels, 1)])
    names = {name for name, _ in scraped(observer)}
    missing = [m.name for m in METRICS if not any(name.startswith(prometheus_name(m)) for name in names)]
    assert missing == []
