"""An outage on Spark: workers pause, loans still end in time, and nothing goes to the error topic."""

from __future__ import annotations

import signal

import pytest

from broker.spark.shop import PATIENCE
from multilane import Consumer

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long]

DOWN = """
import os
from multilane import App, Record
app = App("multilane.yaml")
@app.listener("orders")
async def index(record: Record) -> None:
    if os.path.exists("down") or record.value == b"poison":
        with open(os.environ["SHOP_DONE"] + "-failed", "a") as failed:
            failed.write(f"{record.value.decode()}\\n")
        raise ConnectionError("refused")
    with open(os.environ["SHOP_DONE"], "a") as done:
        done.write(f"{record.value.decode()} {os.environ['MULTILANE_MEMBER']}\\n")
"""


@pytest.mark.parametrize("options", [("--target-batch-duration", "2s"), ("--flow", "continuous")])
def test_nothing_goes_to_the_error_topic_and_all_is_handled_after_it(shop, options):
    (shop.directory / "shop_app.py").write_text(DOWN)
    (shop.directory / "down").touch()
    failed = shop.done_file.with_name("done-failed")
    failed.touch()
    with shop.running("--master", "local[1]", "--conf", "spark.ui.enabled=false", *options) as (process, log):
        # All 201 are tried while it is only suspected; what comes after that are probes, one for each back-off.
        shop.wait_for(lambda: len(failed.read_text().splitlines()) >= 203, log)
        (shop.directory / "down").unlink()
        shop.wait_for(lambda: len(shop.done) == shop.filled, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert sorted(int(value) for value, _ in shop.done) == list(range(shop.filled))
    assert values_of(shop.bootstrap, f"{shop.name}-error") <= {b"poison"}
    assert "consumer orders pauses" in log.read_text()


def values_of(bootstrap: str, topic: str) -> set[bytes | None]:
    with Consumer({"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        partitions = consumer.partitions_for(topic)
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: set[bytes | None] = set()
        while any(consumer.position(p) < end for p, end in ends.items()):
            found |= {record.value for record in consumer.poll(5.0).records()}
        return found
