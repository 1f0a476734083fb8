"""Metrics as Prometheus reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from multilane.metrics.definitions import METRICS
from multilane.metrics.prometheus import PrometheusObserver


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


def test_every_definition_can_be_exported():
    observer = PrometheusObserver()
    for metric in METRICS:
        observer.count(metric.name, 1, **dict.fromkeys(metric.labels, 'a "quoted"\nvalue'))
    assert len(scraped(observer)) == len(METRICS)
