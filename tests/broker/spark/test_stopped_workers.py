"""A worker of the batches flow that was stopped for longer than its lease begins nothing that others have begun."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest

from broker.spark.shop import PATIENCE

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long]

MODULE = """
import asyncio, os
from multilane import App, Record
app = App("multilane.yaml")
ledger = os.open(os.environ["SHOP_DONE"], os.O_WRONLY | os.O_APPEND)
@app.listener("orders")
async def index(record: Record) -> None:
    os.write(ledger, f"{record.topic}/{record.partition}/{record.offset} {os.getpid()}\\n".encode())
    await asyncio.sleep(0.1)
"""
RECORDS = 3_000


def test_a_worker_that_was_stopped_beyond_its_lease_begins_nothing(shop):
    """The group has another member by then, which got half of the partitions."""
    (shop.directory / "shop_app.py").write_text(MODULE)
    shop.configure(rebalanceTimeout="6s")
    shop.fill(b"%d" % n for n in range(RECORDS))

    def begun(*, by: str | None = None, but: str | None = None) -> list[str]:
        return [place for place, pid in shop.done if by in (None, pid) and pid != but]

    with shop.running("--master", "local[1]", "--conf", "spark.ui.enabled=false") as (query, log):
        shop.wait_for(lambda: len(begun()) > 40, log)
        worker = shop.done[0][1]
        os.kill(int(worker), signal.SIGSTOP)
        try:
            before = begun(by=worker)
            with shop.running("--engine", "process") as (other, other_log):
                shop.wait_for(lambda: len(begun(but=worker)) > 60, other_log)
                others = set(begun(but=worker))
                os.kill(int(worker), signal.SIGCONT)
                shop.wait_for(lambda: "session or lease expired" in log.read_text(), log)
                shop.wait_for(lambda: len(set(begun())) == RECORDS + 201, log)
                after = begun(by=worker)[len(before) :]
                other.send_signal(signal.SIGTERM)
                assert other.wait(PATIENCE) == 0, other_log.read_text()[-4_000:]
        finally:
            with suppress(ProcessLookupError):
                os.kill(int(worker), signal.SIGCONT)
        query.send_signal(signal.SIGTERM)
        assert query.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert after, "it goes on with what it still has"
    assert not others & set(after), "it began what another had begun"
