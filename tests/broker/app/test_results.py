"""`results`: what a listener returns is in a topic before the offset of its record is committed."""

from __future__ import annotations

import json
import subprocess
import sys

from broker.app.conftest import running
from lane_world import until
from multilane import Record, Result

PROGRAM = """
import asyncio
import multilane
app = multilane.App("multilane.yaml")
@app.listener("orders")
async def handle(record: multilane.Record) -> dict:
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.002)
    return {"number": int(record.value)}
"""
RECORDS = 3_000


async def test_results_have_the_key_of_their_record_and_the_form_that_was_returned(shop):
    shop.fill(["a", "b", "c", "d"])
    results = shop.make_topic(1)
    app = shop.app(results={"topic": results})
    answers = {0: {"total": 1.5}, 1: None, 2: [b"\x00", "two"], 3: Result("x", key="other", headers={"h": "v"})}

    @app.listener("orders")
    async def handle(record: Record):
        return answers[int(record.value)]

    async with running(app) as task:
        await until(lambda: sum(shop.committed().values()) == 4 or task.done())
    await task
    found = {(r.key, r.value, r.headers) for r in shop.read_all(results)}
    assert found == {
        (b"a", b'{"total":1.5}', ()),
        (b"c", b"\x00", ()),
        (b"c", b"two", ()),
        (b"other", b"x", (("h", b"v"),)),
    }


async def test_a_result_that_its_topic_refuses_sends_its_record_to_the_error_topic(shop):
    shop.fill(["a", "b"], partitions=1)
    results, error = shop.make_topic(1, **{"max.message.bytes": "1000"}), shop.make_topic(1)
    app = shop.app(results={"topic": results}, error=error)

    @app.listener("orders")
    def handle(record: Record):
        return bytes(5_000) if record.key == b"a" else b"small"

    async with running(app) as task:
        await until(lambda: sum(shop.committed().values()) == 2 or task.done())
    await task
    [copy] = shop.read_all(error)
    assert (copy.key, copy.value) == (b"a", b"0")
    assert (
        f"topic {results} does not take the result of {shop.main}-0@0: "
        in dict(copy.headers)["X-ErrorMessage"].decode()
    )
    assert [r.value for r in shop.read_all(results)] == [b"small"]


async def test_a_batch_returns_a_result_for_each_record(shop):
    shop.fill([f"k{n}" for n in range(50)])
    results = shop.make_topic(1)
    app = shop.app(results={"topic": results}, batchSize=10, consumeBatchListenerLatency="100ms")

    @app.listener("orders")
    async def handle(records: list[Record]):
        return [record.value for record in records]

    async with running(app) as task:
        await until(lambda: sum(shop.committed().values()) == 50 or task.done())
    await task
    assert sorted((r.key, r.value) for r in shop.read_all(results)) == sorted(
        (b"k%d" % n, b"%d" % n) for n in range(50)
    )


def test_no_result_is_missing_after_kills(shop, eventually):
    """And those of a key are in its order, the last time each is there."""
    shop.fill([f"k{n % 40}" for n in range(RECORDS)])
    results = shop.make_topic(2)
    shop.app(results={"topic": results}, commitInterval="300ms")
    (shop.folder / "answering.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "multilane", "run", "answering:app", "--engine", "process"]
    for least in (300, 900):
        with subprocess.Popen(command, cwd=shop.folder, stderr=subprocess.PIPE) as child:
            eventually(lambda least=least: len(shop.read_all(results)) >= least, 60)
            child.kill()
    assert sum(shop.committed().values()) < RECORDS, "the kills came too late"
    with subprocess.Popen(command, cwd=shop.folder, stderr=subprocess.PIPE) as child:
        eventually(lambda: sum(shop.committed().values()) == RECORDS, 60)
        child.terminate()
        child.communicate(timeout=60)
    last: dict[bytes, dict[int, int]] = {}
    for place, record in enumerate(shop.read_all(results)):
        by_number = last.setdefault(record.key, {})
        by_number[json.loads(record.value)["number"]] = place
    assert sorted(number for numbers in last.values() for number in numbers) == list(range(RECORDS))
    for numbers in last.values():
        assert sorted(numbers) == sorted(numbers, key=numbers.__getitem__)
