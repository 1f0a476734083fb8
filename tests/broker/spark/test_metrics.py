"""`--metrics` of `multilane run` on each engine, and of `multilane backfill`: the page, and the probes."""

from __future__ import annotations

import signal
import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families

from broker.spark.shop import PATIENCE
from broker.spark.test_backfill import MODULE, RECORDS, Backfill
from broker.spark.test_steering import ENGINES, LONG
from multilane.dev.ports import ReservedPorts

pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.parametrize("engine", ["process", "batches", pytest.param("continuous", marks=LONG)])
def test_metrics_and_probes_of_a_run(shop, engine):
    with ReservedPorts(1) as reserved:
        address = f"127.0.0.1:{reserved.ports[0]}"
        with shop.running(*ENGINES[engine], "--metrics", address, MULTILANE_MEMBER="0") as (process, log):
            shop.wait_for(shop.is_all_settled, log)
            shop.wait_for(lambda: is_drained(values(address)), log)  # reports come once a second
            assert [get(address, page) for page in ("/readyz", "/livez")] == ["ok\n", "ok\n"]
            found = values(address)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert found["multilane_lanes_records_retried_total"] == found["multilane_lanes_records_dead_total"] == 1
    assert found["multilane_group_partitions"] == 8
    assert found["multilane_group_rebalance_duration_seconds_count"] >= 1


GATED = MODULE.replace(
    "    if record.value ==",
    """    while record.offset >= 250 and not os.path.exists("go"):
        await asyncio.sleep(0.05)
    if record.value ==""",
)


@pytest.mark.timeout(300)
def test_metrics_and_probes_of_a_backfill(shop, fill):
    made = Backfill(shop, fill)
    (shop.directory / "shop_app.py").write_text(GATED)
    settled, left = "multilane_lanes_records_settled_total", "multilane_backfill_remaining"
    with ReservedPorts(1) as reserved:
        address = f"127.0.0.1:{reserved.ports[0]}"
        with made.running("--from", "earliest", "--metrics", address) as (process, log, _):
            shop.wait_for(lambda: is_served(address) and values(address).get(settled) == 1_000, log)
            shop.wait_for(lambda: values(address)[left] == RECORDS - 1_000, log)  # gauges come once a second
            for name in ("multilane_lanes_calls", "multilane_lanes_call_duration_seconds_count"):
                shop.wait_for(lambda name=name: values(address).get(name, 0) > 0, log)
            assert [get(address, page) for page in ("/readyz", "/livez")] == ["ok\n", "ok\n"]
            found = values(address)
            (shop.directory / "go").touch()
            assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert found["multilane_backfill_position"] == 1_000
    assert (found["multilane_backfill_tasks"], found["multilane_backfill_failed"]) == (2, 0)
    assert found["multilane_fetch_bytes_total"] > 0


def is_served(address: str) -> bool:
    try:
        get(address, "/livez")
    except OSError:  # Python still starts
        return False
    return True


def is_drained(found: dict[str, float]) -> bool:
    """200 records, and one that fails in the topic and in the retry topic."""
    calls, settled = "multilane_lanes_call_duration_seconds_count", "multilane_lanes_records_settled_total"
    gauges = ("lanes_calls", "lanes_records_in_flight", "lanes_records_waiting", "partition_lag")
    is_idle = all(found.get(f"multilane_{name}") == 0 for name in gauges)
    return is_idle and found.get(calls) == found.get(settled) == 202


def values(address: str) -> dict[str, float]:
    """The sum over all labels, by name."""
    sums: dict[str, float] = {}
    for family in text_string_to_metric_families(get(address, "/metrics")):
        for sample in family.samples:
            sums[sample.name] = sums.get(sample.name, 0) + sample.value
    return sums


def get(address: str, page: str) -> str:
    with urllib.request.urlopen(f"http://{address}{page}", timeout=30) as answer:
        return answer.read().decode()
