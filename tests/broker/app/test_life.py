"""An app on a real Kafka: it reads everything once, stops without a trace, and goes on where it was."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading

import pyarrow as pa
import pytest

from broker.app.conftest import running
from lane_world import until
from multilane.client.admin.admin import Admin
from multilane.errors import BreakerOpen, ConfigError
from multilane.lanes.partition_events import Partitions
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.context import Context
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]
KEYS = [f"k{i % 40}" for i in range(1000)]
EVERYTHING = [b"%d" % i for i in range(1000)]


def collector(kind: str):
    """A handler of each kind, and the values it got."""
    got: list[bytes | None] = []

    async def single(record: Record) -> None:
        got.append(record.value)

    def threaded(record: Record) -> None:
        got.append(record.value)

    async def batch(records: list[Record]) -> None:
        got.extend(record.value for record in records)

    def columns(batch: pa.RecordBatch) -> None:
        got.extend(batch["value"].to_pylist())

    return {"single": single, "threaded": threaded, "batch": batch, "columns": columns}[kind], got


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("kind", ["single", "threaded", "batch", "columns"])
async def test_everything_once_and_committed_to_the_end(shop, kind, protocol):
    shop.fill(KEYS)
    windows = {"batchSize": 20, "consumeBatchListenerLatency": "50ms"} if kind in ("batch", "columns") else {}
    app = shop.app(groupProtocol=protocol, **windows)
    handler, got = collector(kind)
    app.listener("orders")(handler)
    async with running(app) as task:
        await until(lambda: len(got) >= 1000 or task.done())
    await task
    assert sorted(got) == sorted(EVERYTHING)
    assert sum(shop.committed().values()) == 1000


async def test_a_clean_stop_in_the_middle_repeats_nothing(shop):
    shop.fill(KEYS)
    got: list[bytes | None] = []
    for stop_at in (100, 400, 1000):
        app = shop.app()
        turn = asyncio.Event()

        @app.listener("orders")
        async def handle(record: Record) -> None:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.001)
            got.append(record.value)
            if len(got) >= stop_at:  # noqa: B023 - used within its turn
                turn.set()  # noqa: B023

        async with running(app) as task:
            await asyncio.wait_for(turn.wait(), 30)
        await task
    assert sorted(got) == sorted(EVERYTHING)


async def test_what_was_settled_beyond_a_hung_record_is_not_repeated(shop):
    shop.fill(["slow"] + [f"k{i}" for i in range(499)], partitions=1)
    hang = asyncio.Event()
    got: list[bytes | None] = []
    app = shop.app(maxProcessingTime="1h", rebalanceTimeout="1s", virtualPartitionChanCount=1000)

    @app.listener("orders")
    async def handle(record: Record) -> None:
        if record.key == b"slow":
            await hang.wait()
        got.append(record.value)

    async with running(app) as task:
        await until(lambda: len(got) == 499)
        await until(lambda: shop.committed() == {f"{shop.main}-0": 0})
    await task
    assert b"0" not in got
    again = shop.app()
    handler, rest = collector("single")
    again.listener("orders")(handler)
    async with running(again) as task:
        await until(lambda: rest)
        await until(lambda: shop.committed() == {f"{shop.main}-0": 500})
    assert rest == [b"0"]


async def test_where_reading_began_is_committed_before_anything_came(shop):
    shop.fill(["a"] * 10, partitions=1)
    app = shop.app(offsetInitial="newest")
    handler, got = collector("single")
    app.listener("orders")(handler)
    async with running(app):
        await until(lambda: shop.committed() == {f"{shop.main}-0": 10})
    assert got == []
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        [place] = admin.group_offsets(f"{shop.main}.group").values()
    assert place.leader_epoch == 0, "so that a log which is cut before anything was read is noticed"


async def test_manual_acknowledgements(shop):
    shop.fill(["a", "b", "c", "d"], partitions=1)
    given: dict[bytes | None, Acknowledgement] = {}
    app = shop.app(ack="manual")

    @app.listener("orders")
    async def handle(record: Record, done: Acknowledgement) -> None:
        given[record.value] = done

    async with running(app):
        await until(lambda: len(given) == 4)
        for value in (b"0", b"1", b"3"):
            threading.Thread(target=given[value]).start()
        await until(lambda: shop.committed() == {f"{shop.main}-0": 2})
        given[b"2"]()
        await until(lambda: shop.committed() == {f"{shop.main}-0": 4})


async def test_a_full_partition_is_paused_and_no_other(shop):
    from multilane.client.produce.producer import Producer

    shop.main = shop.make_topic(2)
    with Producer({"bootstrap.servers": shop.bootstrap}) as producer:
        producer.send_many([(shop.main, b"%d" % i, b"hung", (), 0) for i in range(300)]).result(30)
        producer.send_many([(shop.main, b"%d" % i, b"k%d" % i, (), 1) for i in range(3000)]).result(30)
    hang, got = asyncio.Event(), []
    app = shop.app(maxProcessingTime="1h", virtualPartitionCount=2, virtualPartitionChanCount=10)

    @app.listener("orders")
    async def handle(record: Record) -> None:
        if record.partition == 0:
            await hang.wait()
        got.append(record.partition)

    async with running(app) as task:
        await until(lambda: got.count(1) == 3000)
        assert app.engine is not None
        open_ = {str(processor): processor.queue.unsettled for processor in app.engine.consumers["orders"].processors}
        assert open_ == {f"{shop.main}-0": 20, f"{shop.main}-1": 0}
        hang.set()
        await until(lambda: got.count(0) == 300)
    await task


async def test_bytes_in_flight_are_bounded(shop):
    shop.main = shop.make_topic(1)
    from multilane.client.produce.producer import Producer

    with Producer({"bootstrap.servers": shop.bootstrap}) as producer:
        producer.send_many([(shop.main, b"x" * 1000, b"k%d" % i) for i in range(5000)]).result(30)
    most, handled = 0, 0
    app = shop.app(maxInFlightBytes="100kb", virtualPartitionChanCount=10_000)

    @app.listener("orders")
    async def handle(record: Record) -> None:
        nonlocal most, handled
        assert app.engine is not None
        (processor,) = app.engine.consumers["orders"].processors
        most = max(most, *(intake.open_bytes for intake in processor.queue.intakes.values()))
        handled += 1

    async with running(app) as task:
        await until(lambda: handled == 5000 or task.done())
    await task
    assert 0 < most < 100 * 1024 + 1005, "one record beyond the limit at most"


async def test_the_breaker_ends_the_group_instead_of_filling_the_error_topic(shop):
    shop.fill([f"k{i}" for i in range(2000)])
    error = shop.make_topic(1)
    app = shop.app(error=error, errorBreaker={"action": "stop", "share": "50%", "minimum": 50})

    @app.listener("orders")
    async def handle(record: Record) -> None:
        raise ValueError("everything fails")

    with pytest.raises(BreakerOpen, match="records failed within 60 s"):
        await app.serve()
    assert len(shop.read_all(error)) < 100


async def test_processes(shop):
    from broker.app.in_processes import pid_of

    shop.fill(KEYS[:40])
    app = shop.app(processes=2, maxProcessingTime="60s", retry=shop.make_topic(2), error=shop.make_topic(1))
    app.listener("orders")(pid_of)
    async with running(app) as task:
        await until(lambda: sum(shop.committed().values()) >= 40 or task.done())
    await task
    errors = [r for topic in (app.config.consumer("orders").error,) for r in shop.read_all(topic)]
    assert {r.value for r in errors} == {b"13"}
    assert b"a worker refuses 13" in dict(errors[0].headers)["X-ErrorMessage"]


async def test_unequal_partitions_are_refused_with_the_reason(shop):
    shop.fill(["a"], partitions=3)
    app = shop.app(retry=shop.make_topic(2), retryOrder="key")
    handler, _ = collector("single")
    app.listener("orders")(handler)
    with pytest.raises(ConfigError, match=rf"{shop.main} has 3"):
        await app.serve()


PROGRAM = """
import multilane
app = multilane.App("multilane.yaml")
@app.listener("orders")
async def handle(record: multilane.Record) -> None:
    print(record.value.decode(), flush=True)
"""


def test_multilane_run_ends_in_order_on_sigterm(shop):
    shop.fill(KEYS[:100])
    shop.app()
    (shop.folder / "shop_program.py").write_text(PROGRAM)
    command = [
        sys.executable,
        "-c",
        "from multilane.cli.main import main; main()",
        "run",
        "shop_program:app",
        "--engine",
        "process",
    ]
    with subprocess.Popen(command, cwd=shop.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        got = sorted(int(child.stdout.readline()) for _ in range(100))
        os.kill(child.pid, signal.SIGTERM)
        _, said = child.communicate(timeout=60)
    assert got == list(range(100))
    assert child.returncode == 0, said
    assert "SIGTERM: stopping" in said
    assert sum(shop.committed().values()) == 100


async def test_a_retry_topic_that_is_missing_is_waited_for_and_ends_nobody_else(shop, kafka):
    """It ended the whole app, and with it consumers that had nothing to do with it."""
    shop.fill(["a", "b"], partitions=2)
    missing = f"{shop.main}.retry"
    app = shop.app(retry=missing, error=shop.make_topic(1))
    other = json.loads((shop.folder / "multilane.yaml").read_text())
    other["consumers"]["other"] = {**other["consumers"]["orders"], "groupId": f"{shop.main}.other", "retry": None}
    (shop.folder / "multilane.yaml").write_text(json.dumps(other))
    app = type(app)(shop.folder / "multilane.yaml")
    handled: list[tuple[str, int]] = []

    @app.listener("orders")
    async def handle(record: Record) -> None:
        handled.append(("orders", record.offset))

    @app.listener("other")
    async def handle_other(record: Record) -> None:
        handled.append(("other", record.offset))

    async with running(app) as task:
        await until(lambda: len(handled) == 2 or task.done())
        assert {name for name, _ in handled} == {"other"}
        with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
            admin.create_topics({missing: 2})
        await until(lambda: len(handled) == 4 or task.done())
        assert not task.done()
    await task


async def test_a_first_start_says_how_many_records_it_skips(shop, caplog):
    shop.fill(KEYS[:120], partitions=2)
    app = shop.app(offsetInitial="newest", retry=shop.make_topic(2), error=shop.make_topic(1))
    handler, got = collector("single")
    app.listener("orders")(handler)
    with caplog.at_level("WARNING", "multilane"):
        async with running(app) as task:
            await until(lambda: len(shop.committed()) == 4 or task.done())
        await task
        skips = [r.getMessage() for r in caplog.records if "are skipped" in r.getMessage()]
        assert len(skips) == 1
        assert "120 existing records are skipped" in skips[0]
        caplog.clear()
        async with running(app) as task:
            await until(lambda: (app.engine is not None and app.engine.consumers["orders"].processors) or task.done())
        await task
        assert not [r for r in caplog.records if "are skipped" in r.getMessage()], "the second start skips nothing"
    assert got == []


async def test_partitions_are_heard_of_before_their_first_record_and_after_their_last(shop):
    shop.fill(KEYS[:40])
    app = shop.app()
    heard = []

    @app.on_assigned
    async def begin(told: Partitions) -> None:
        heard.append(("assigned", told))

    @app.on_revoked
    def finish(told: Partitions) -> None:
        heard.append(("revoked", told))

    @app.listener("orders")
    async def handle(record: Record, context: Context) -> None:
        heard.append(("handled", context["Z-MemberID"]))

    async with running(app) as task:
        await until(lambda: sum(what == "handled" for what, _ in heard) == 40 or task.done())
    await task
    kinds = [what for what, _ in heard]
    first, last = heard[0][1], heard[-1][1]
    assert kinds == ["assigned", *["handled"] * 40, "revoked"]
    assert first.partitions == last.partitions == {TopicPartition(shop.main, 0), TopicPartition(shop.main, 1)}
    assert {member for what, member in heard if what == "handled"} == {first.member_id}
    assert (first.consumer, last.is_lost) == ("orders", False)
    assert sum(shop.committed().values()) == 40
