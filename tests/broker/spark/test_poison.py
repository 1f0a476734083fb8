"""A record that kills the Python worker that handles it, in both flows: it is found, and the others are handled."""

from __future__ import annotations

import pytest

from multilane.client.consumer import Consumer
from multilane.outcome.headers import SUSPECTED_POISON

pytestmark = [pytest.mark.broker, pytest.mark.slow]
MODULE = """
import asyncio, os, signal
from multilane import App, Record
app = App("multilane.yaml")
@app.listener("orders")
async def index(record: Record) -> None:
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.02)
    if record.value == b"poison":
        os.kill(os.getpid(), signal.SIGKILL)
    with open(os.environ["SHOP_DONE"], "a") as done:
        done.write(f"{record.value.decode()} {os.environ['MULTILANE_MEMBER']}\\n")
"""


@pytest.mark.long
@pytest.mark.parametrize("flow", ["batches", "continuous"])
def test_a_record_that_kills_its_worker_goes_to_the_error_topic(shop, tmp_path, flow):
    (shop.directory / "shop_app.py").write_text(MODULE)
    options = ("--flow", flow, "--master", "local[2]")
    with shop.running(*options, MULTILANE_STATE=str(tmp_path / "state")) as (process, log):
        shop.wait_for(lambda: sum(shop.committed().values()) >= 201, log)
        process.terminate()
        assert process.wait(120) == 0, log.read_text()[-4_000:]
    assert {int(value) for value, _ in shop.done} == set(range(200))
    with Consumer({"bootstrap.servers": shop.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign(consumer.partitions_for(f"{shop.name}-error"))
        [poison] = consumer.poll(20.0).records()
    assert poison.value == b"poison"
    assert dict(poison.headers)[SUSPECTED_POISON] == b"3"
