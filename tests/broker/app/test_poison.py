"""A record that kills the process that handles it: it is found, and the others are handled."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from multilane.outcome.headers import SUSPECTED_POISON, error_message

pytestmark = [pytest.mark.broker]
RECORDS = 50
POISON = 13
PROGRAM = """
import asyncio, os, signal
import multilane
app = multilane.App("multilane.yaml")
@app.listener("orders")
async def handle(ARGUMENT) -> None:
    records = RECORDS
    if any(record.value == b"13" for record in records):
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.05)  # others begin meanwhile
        os.kill(os.getpid(), signal.SIGKILL)
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.02)
    os.write(1, b"".join(b"%s\\n" % record.value for record in records))
"""
SINGLE = PROGRAM.replace("ARGUMENT", "record: multilane.Record").replace("RECORDS", "[record]")
BATCH = PROGRAM.replace("ARGUMENT", "records: list[multilane.Record]").replace("RECORDS", "records")


@pytest.mark.parametrize(
    ("program", "settings"),
    [
        pytest.param(SINGLE, {}, id="single"),
        pytest.param(BATCH, {"batchSize": 5}, id="batch", marks=pytest.mark.long),
    ],
)
def test_a_record_that_kills_its_process_goes_to_the_error_topic_and_all_others_are_handled(
    shop, eventually, program, settings
):
    shop.fill([f"k{n}" for n in range(RECORDS)])
    errors = shop.make_topic(1)
    shop.app(error=errors, maxProcessingTime="30s", consumeBatchListenerLatency="100ms", **settings)
    (shop.folder / "poisoned.py").write_text(program)
    command = [sys.executable, "-m", "multilane", "run", "poisoned:app", "--engine", "process", "--members", "2"]
    environment = {**os.environ, "MULTILANE_STATE": str(shop.folder / "state")}
    log = shop.folder / "log"
    with (shop.folder / "handled").open("wb") as out, log.open("wb") as err:
        child = subprocess.Popen(command, cwd=shop.folder, stdout=out, stderr=err, env=environment)
        try:
            eventually(lambda: sum(shop.committed().values()) == RECORDS, 60)
        finally:
            child.terminate()
            child.wait(60)
    handled = set(map(int, (shop.folder / "handled").read_text().split()))
    assert handled == set(range(RECORDS)) - {POISON}, log.read_text()[-2000:]
    [poison] = shop.read_all(errors)
    assert poison.value == b"%d" % POISON
    assert dict(poison.headers)[SUSPECTED_POISON] == b"3"
    assert "the process died 3 times while handling this record" in error_message(poison.headers)
    assert child.returncode == 0
