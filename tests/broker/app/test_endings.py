"""SIGTERM ends a process whatever its functions do."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.broker]

PROGRAM = """
import asyncio, threading, time
import multilane
app = multilane.App("multilane.yaml")

async def swallow():
    while True:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            continue

@app.listener("orders")
async def handle(record: multilane.Record) -> None:
    print(record.key.decode(), flush=True)
    if record.key == b"swallow":
        await swallow()
    if record.key == b"thread":
        await asyncio.to_thread(time.sleep, 3600)
    if record.key == b"own thread":
        threading.Thread(target=time.sleep, args=(3600,)).start()
    if record.key == b"block":
        time.sleep(3600)
app.run()
"""


@pytest.mark.parametrize(
    ("keys", "code", "said"),
    [
        (["swallow", "thread"], 0, "abandoning a task that ignores its cancellation"),
        (["own thread"], 1, "threads of the application"),
        (["block"], 1, "blocks the event loop"),
    ],
    ids=["swallow", "own thread", "block"],
)
def test_sigterm_ends_the_process_within_its_drain(shop, keys, code, said):
    shop.fill(keys, partitions=1)
    shop.app(rebalanceTimeout="2s", maxProcessingTime="60s", error=shop.make_topic(1))
    (shop.folder / "shop_program.py").write_text(PROGRAM)
    command = [sys.executable, "shop_program.py"]
    with subprocess.Popen(command, cwd=shop.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert {child.stdout.readline().strip() for _ in keys} == set(keys)
        os.kill(child.pid, signal.SIGTERM)
        try:
            _, told = child.communicate(timeout=30)
        finally:
            child.kill()
    assert said in told
    assert child.returncode == code, told


HUNG = """
import os, threading
import multilane
app = multilane.App("multilane.yaml")

@app.listener("orders")
def handle(record: multilane.Record) -> None:
    os.write(1, record.key + b"\\n")  # one write: lines of several threads do not mix
    if record.key.startswith(b"hang"):
        threading.Event().wait()
app.run()
"""


def test_many_hung_plain_functions_keep_neither_their_partition_nor_the_process(shop):
    """Beyond twice as many as lanes the partition stood still."""
    keys = [*(f"hang{number}" for number in range(12)), "a", "b"]
    shop.fill(keys, partitions=1)
    shop.app(rebalanceTimeout="2s", maxProcessingTime="300ms", virtualPartitionCount=2, error=shop.make_topic(1))
    (shop.folder / "shop_program.py").write_text(HUNG)
    command = [sys.executable, "shop_program.py"]
    with subprocess.Popen(command, cwd=shop.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            assert {child.stdout.readline().strip() for _ in keys} == set(keys)
            os.kill(child.pid, signal.SIGTERM)
            _, told = child.communicate(timeout=30)
        finally:
            child.kill()
    assert "and do not end" in told
    assert "shop_program.py:10" in told
    assert child.returncode == 0, told
