"""`multilane control` on an application that runs, on each engine."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading

import pytest

from broker.spark.shop import PATIENCE

pytestmark = [pytest.mark.broker, pytest.mark.slow]

QUIET = ("--conf", "spark.ui.enabled=false", "--master", "local[2]")
ENGINES = {
    "process": ("--engine", "process"),
    "batches": ("--flow", "batches", *QUIET),
    "continuous": ("--flow", "continuous", *QUIET),
}


LONG = pytest.mark.long


@pytest.mark.parametrize(
    "engine", ["process", pytest.param("batches", marks=LONG), pytest.param("continuous", marks=LONG)]
)
def test_a_consumer_is_held_up_and_goes_on(shop, engine, tmp_path):
    path = tmp_path / "control"

    def control(*words: str) -> dict:
        command = [sys.executable, "-m", "multilane", "control", str(path), *words, "--output", "json"]
        told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert told.returncode == 0, told.stderr
        return json.loads(told.stdout)

    with shop.running(*ENGINES[engine], "--control", str(path), MULTILANE_MEMBER="0") as (process, log):
        shop.wait_for(shop.is_all_settled, log)
        assert control("pause", "orders")["orders"]["paused"]
        threading.Event().wait(1.0)  # until every worker has heard it
        shop._fill(shop.name, [(b"%d" % i, b"k%d" % i, (), i % 4) for i in range(200, 240)])
        threading.Event().wait(2.0)
        assert len(shop.done) == 200, "nothing is taken while it is paused"
        assert control("lanes", "orders", "2")["orders"] == {"paused": True, "lanes": 2, "configured": 5}
        assert not control("resume", "orders")["orders"]["paused"]
        shop.wait_for(lambda: len(shop.done) == 240, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert sorted(int(value) for value, _ in shop.done) == list(range(240))
    assert not path.exists()
