"""Triggers of one topic in batches on a real Spark: one hangs, one fails, one is quick, and their worker is killed."""

from __future__ import annotations

import json
import os
import re
import signal
from collections import Counter

import pytest

from broker.spark.shop import PATIENCE, Shop
from multilane import Admin
from multilane.commit import completion_map

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OPTIONS = ("--conf", "spark.ui.enabled=false", "--target-batch-duration", "2s")
TRIGGERS = """
import asyncio, os
from pathlib import Path
from multilane import App, Record
app = App("multilane.yaml")
go_on = Path(os.environ["SHOP_DONE"] + "-go-on")

def note(name: str, record: Record) -> None:
    with open(os.environ["SHOP_DONE"], "a") as done:
        done.write(f"{name} {record.value.decode()}\\n")

@app.listener("hangs")
async def hang(record: Record) -> None:
    while record.value.endswith(b"7") and not go_on.exists():
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.1)
    note("hangs", record)

@app.listener("fails")
async def fail(record: Record) -> None:
    if record.value.endswith(b"3") and not record.topic.endswith("-retry"):
        raise ValueError("at first")
    note("fails", record)

@app.listener("quick")
async def index(record: Record) -> None:
    note("quick", record)
"""


def by_trigger(shop: Shop) -> dict[str, Counter[str]]:
    found: dict[str, Counter[str]] = {name: Counter() for name in ("hangs", "fails", "quick")}
    for name, value in shop.done:
        found[name][value] += 1
    return found


def shared(shop: Shop) -> None:
    (shop.directory / "shop_app.py").write_text(TRIGGERS)
    file = shop.directory / "multilane.yaml"
    keys = json.loads(file.read_text())
    of_orders = keys["consumers"].pop("orders")
    own = {"retry": of_orders.pop("retry"), "retryCount": of_orders.pop("retryCount"), "error": of_orders.pop("error")}
    own |= {"retryBackoff": {"delay": "0s"}, "retryOrder": "none", "errorBreaker": {"action": "off"}}
    of_orders |= {"sharing": "same-topic", "maxProcessingTime": "10m", "rebalanceTimeout": "6s"}
    keys["consumers"] = {
        "hangs": of_orders,
        "fails": of_orders | own,
        "quick": of_orders | {"shadowGroup": f"{shop.name}.quick"},
    }
    file.write_text(json.dumps(keys))


def positions(shop: Shop) -> dict[str, int]:
    """How far each trigger is in the topic, over all partitions."""
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        commits = {p: c for p, c in admin.group_offsets(shop.name).items() if p.topic == shop.name}
    found: Counter[str] = Counter()
    for commit in commits.values():
        for name, position in completion_map.read(commit.metadata, commit.offset).positions.items():
            found[name] += position.offset + sum(last - first + 1 for first, last in position.runs)
    return dict(found)


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_trigger_that_hangs_and_one_that_fails_slow_nobody_and_lose_nothing(shop):
    """The calls hang beyond their lease. After a clean stop nobody repeats what it had settled."""
    shared(shop)
    more = [b"%d" % n for n in range(200, 600)]
    everything = {"poison", *map(str, range(600))}
    hanging = {value for value in everything if value.endswith("7")}
    with shop.running("--master", "local[1]", *OPTIONS) as (process, log):
        shop.wait_for(lambda: positions(shop) == {"hangs": 181, "fails": 201, "quick": 201}, log)
        worker = int(re.findall(r" worker (\d+) ", log.read_text())[-1])
        shop.fill(more)
        os.kill(worker, signal.SIGKILL)
        shop.wait_for(lambda: everything <= by_trigger(shop)["quick"].keys(), log)
        shop.wait_for(lambda: everything <= by_trigger(shop)["fails"].keys(), log)
        shop.wait_for(lambda: everything - hanging <= by_trigger(shop)["hangs"].keys(), log)
        shop.wait_for(lambda: positions(shop)["quick"] == 601, log)
        shop.wait_for(lambda: positions(shop)["hangs"] == 601 - len(hanging), log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        alone = admin.group_offsets(f"{shop.name}.quick")
    assert sum(commit.offset for commit in alone.values()) == 601, "its own group says how far it is"
    before = by_trigger(shop)
    assert before["hangs"].keys() == everything - hanging
    shop.done_file.with_name("done-go-on").touch()
    with shop.running("--master", "local[1]", *OPTIONS) as (process, log):
        shop.wait_for(lambda: everything <= by_trigger(shop)["hangs"].keys(), log)
        shop.wait_for(lambda: positions(shop) == dict.fromkeys(("hangs", "fails", "quick"), 601), log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    after = by_trigger(shop)
    assert {name: after[name] - before[name] for name in after} == {
        "hangs": Counter(hanging),
        "fails": Counter(),
        "quick": Counter(),
    }
    reported = {"poison", *map(str, range(200))} - hanging  # before its worker was killed
    assert {after["quick"][value] for value in reported} == {after["hangs"][value] for value in reported} == {1}
