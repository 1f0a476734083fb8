"""`multilane top` as a person uses it: an app of the process engine, and what its group shows of it."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
import sys
from contextlib import contextmanager

import pytest
from typer.testing import CliRunner

from broker.app.conftest import running
from lane_world import until
from multilane.cli import main
from multilane.client.produce.producer import Producer
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]

PATIENCE = 60.0
HANG = b"hang"
WIDE = {"COLUMNS": "200", "TERM": "dumb"}


@pytest.fixture
def fill(kafka):
    def write(topic: str, partition: int, keys: list[bytes]) -> None:
        with Producer({"bootstrap.servers": kafka.bootstrap()}) as producer:
            producer.send_many([(topic, b"", key, (), partition) for key in keys]).result(30)

    return write


@pytest.fixture
def app(shop, topic, fill):
    """Partition 0 is worked off, 1 has one record that hangs with others behind it, 2 has nothing else."""
    shop.main, retry = topic(3), topic(1)
    numbered = [b"k%d" % n for n in range(50)]
    fill(shop.main, 0, numbered)
    fill(shop.main, 1, [*numbered[:10], HANG, *numbered])
    fill(shop.main, 2, [HANG] * 20)
    app = shop.app(retry=retry, retryOrder="none", maxProcessingTime="10m", rebalanceTimeout="4s")
    app.handled = 0

    @app.listener("orders")
    async def handle(record: Record) -> None:
        if record.key == HANG:
            await asyncio.Event().wait()
        app.handled += 1

    return app


async def top(shop, *arguments: str) -> str:
    command = ["top", "--config", str(shop.folder / "multilane.yaml"), "--once", "--stalled-after", "500ms", *arguments]
    told = await asyncio.to_thread(CliRunner().invoke, main.app, command, env=WIDE)
    assert told.exit_code == 0, told.output + repr(told.exception)
    return told.stdout


async def test_members_lag_what_is_settled_beyond_and_who_stands_still(shop, app, fill):
    async with running(app):
        await until(lambda: app.handled >= 110)
        await until(lambda: shop.committed().get(f"{shop.main}-1") == 10)
        (group,) = json.loads(await top(shop, "-o", "json"))["groups"]
        table = await top(shop, "Orders", "--every", "600ms")
    assert (group["consumer"], group["group"], group["exists"]) == ("orders", f"{shop.main}.group", True)
    assert (group["protocol"], group["state"], group["missing_topics"]) == ("consumer", "Stable", [])
    (member,) = group["members"]
    assert (member["client_id"], member["host"], len(member["partitions"])) == ("test", "127.0.0.1", 4)
    rows = {(row["retry"], row["partition"]): row for row in group["partitions"]}
    assert set(rows) == {(False, 0), (False, 1), (False, 2), (True, 0)}
    held = rows[False, 1]
    assert (held["committed"], held["end"], held["lag"], held["settled_beyond"]) == (10, 61, 51, 50)
    assert (held["verdict"], held["member"], held["settled_per_second"]) == ("stalled", "test", 0.0)
    assert held["still_seconds"] >= 0.5
    assert (rows[False, 0]["verdict"], rows[False, 0]["lag"]) == ("up to date", 0)
    assert (rows[False, 2]["verdict"], rows[False, 2]["lag"]) == ("stalled", 20)
    assert rows[True, 0]["verdict"] == "up to date"
    assert [row["lag"] for row in group["partitions"]] == [51, 20, 0, 0], "most lag first"
    assert (group["lag"], group["settled_beyond"], group["stalled"]) == (71, 50, 2)
    lines = table.splitlines()
    assert (
        f"orders: group {shop.main}.group (consumer) Stable, 2 stalled, 1 member, lag 71 (50 of it settled)" in lines[2]
    )
    (stalled,) = [line for line in lines if f"{shop.main}/1 " in line]
    assert stalled.endswith("s at 10")
    assert "stalled" in stalled


@contextmanager
def watching(*arguments: str, **streams):
    command = [sys.executable, "-m", "multilane", "top", *arguments]
    with subprocess.Popen(command, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


async def test_live_from_before_the_group_is_there(shop, app, fill):
    """By its name alone, as a line of JSON for each look; also when all have left it."""
    group = ("--group", f"{shop.main}.group", "--bootstrap-server", shop.bootstrap)
    with watching(*group, "-o", "json", "--every", "100ms", stdout=subprocess.PIPE, text=True) as process:

        async def found(wanted):
            async with asyncio.timeout(PATIENCE):
                while True:
                    (told,) = json.loads(await asyncio.to_thread(process.stdout.readline))["groups"]
                    if wanted(told):
                        return told

        absent = await found(lambda told: True)
        assert (absent["exists"], absent["partitions"], absent["lag"]) == (False, [], 0)
        async with running(app):
            await found(lambda told: told["settled_beyond"] == 50)
            fill(shop.main, 1, [b"more"] * 30)
            moving = await found(lambda told: told["settled_beyond"] == 80)
        assert moving["arriving_per_second"] > 0
        assert moving["settled_per_second"] > 0
        left = await found(lambda told: told["state"] == "Empty")
        assert left["members"] == []
        assert {row["member"] for row in left["partitions"]} == {None}
        process.send_signal(signal.SIGTERM)
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0


async def test_a_terminal_is_given_back_as_it_was(shop, app):
    ours, theirs = pty.openpty()
    named = ("--group", f"{shop.main}.group", "--brokers", shop.bootstrap, "--every", "100ms")
    told = b""
    environ = {**os.environ, "TERM": "xterm"}
    with watching(*named, stdin=theirs, stdout=theirs, stderr=theirs, env=environ) as process:
        os.close(theirs)
        async with asyncio.timeout(PATIENCE):
            while told.count(b"does not exist yet") < 2:
                told += await asyncio.to_thread(os.read, ours, 10_000)
        process.send_signal(signal.SIGINT)
        async with asyncio.timeout(PATIENCE):
            while b"\x1b[?1049l" not in told:
                told += await asyncio.to_thread(os.read, ours, 10_000)
        assert await asyncio.to_thread(process.wait, PATIENCE) == 0
    os.close(ours)
    assert b"\x1b[?1049h" in told, "a screen of its own"
    assert b"Traceback" not in told
