"""`multilane run`: an app as a streaming query, whose tasks are lent its partitions."""

from __future__ import annotations

import os
import re
import signal
import sys

import pytest

from broker.spark.clusters import executors, standalone_cluster
from broker.spark.shop import CLOCK, MODULE, OBSERVED, PATIENCE, assert_poison_is_seen
from multilane import Admin

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OPTIONS = ("--conf", "spark.ui.enabled=false")


@pytest.mark.long
def test_tasks_share_the_work_of_one_member_and_end_in_order(shop):
    with shop.running("--master", "local[2]", *OPTIONS) as (process, log):
        shop.wait_for(shop.is_all_settled, log)
        shop.wait_for(lambda: shop.is_shared(2), log)
        with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
            group = admin.describe_groups([shop.name])[shop.name]
        shop.wait_for(lambda: len(shop.done) == shop.filled, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert len(group.members) == 1, "the query is one member, however many tasks it has"
    assert sorted(int(value) for value, _ in shop.done) == list(range(shop.filled))
    assert sum(shop.committed().values()) == shop.filled + 2, "with the poison, and its copy in the retry topic"
    assert_poison_is_seen(log.read_text())


@pytest.mark.long
def test_a_module_that_workers_cannot_import(shop):
    """It is there for the driver and the coordinator only."""
    (shop.directory / "shop_app.py").write_text(
        "import threading\nif threading.current_thread().name == 'MainThread' and 'daemon pyspark.worker' in ' '.join("
        "__import__('sys').orig_argv): import no_such_module\n" + MODULE
    )
    code, log = shop.run_to_its_end("--master", "local[1]", *OPTIONS)
    assert code == 1
    assert "the application cannot run: ModuleNotFoundError: No module named 'no_such_module'" in log
    assert shop.done == []
    assert shop.committed() == {}, "nobody has joined the group"


@pytest.mark.long
def test_records_flow_again_soon_after_the_query_process_was_killed(shop):
    """Tasks are not tried again at a dead address, and the group drops its member before the session ends."""
    shop.configure(sessionTimeout="60s", **{"group.protocol": "classic"})
    with shop.running("--master", "local[2]", *OPTIONS) as (process, log):
        shop.wait_for(shop.is_all_settled, log)
        shop.wait_for(lambda: shop.is_shared(2), log)
        coordinator, before = re.findall(r"coordinator (\d+) ", log.read_text())[-1], len(log.read_text().splitlines())
        killed_at = CLOCK.monotonic()
        os.kill(int(coordinator), signal.SIGKILL)
        shop.fill([b"-1", b"-2", b"-3", b"-4"])
        shop.wait_for(lambda: {"-1", "-2", "-3", "-4"} <= {value for value, _ in shop.done}, log)
        seconds, lines = CLOCK.monotonic() - killed_at, len(log.read_text().splitlines()) - before
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert seconds < 45, "a loaded machine takes its time, but not a session's"
    assert lines < 150, log.read_text()[-8_000:]
    assert "the query failed, restarting it in 1 s: the query process died" in log.read_text()


HANGING = """
import asyncio, threading
from pathlib import Path

async def hang():
    while not Path(os.environ["SHOP_DONE"] + "-go-on").exists():
        await asyncio.to_thread(threading.Event().wait, 0.1)
""" + OBSERVED.replace("\n    with open(os", "\n    if record.value == b'hang': await hang()\n    with open(os")


HUNG = MODULE.replace("async def index", "def index").replace(
    "\n    with open(os", "\n    if record.value.startswith(b'hang'): threading.Event().wait()\n    with open(os"
)


@pytest.mark.long
def test_many_hung_plain_functions_keep_neither_their_partitions_nor_the_processes(shop):
    """Six in each partition with two lanes. Their calls are carried over, and the workers end nevertheless."""
    (shop.directory / "shop_app.py").write_text("import threading\n" + HUNG)
    shop.configure(maxProcessingTime="300ms", virtualPartitionCount=2)
    shop.fill(b"hang%d" % n for n in range(24))
    with shop.running("--master", "local[2]", "--target-batch-duration", "2s", *OPTIONS) as (process, log):
        shop.wait_for(lambda: len(shop.done) == shop.filled, log)
        shop.fill(b"new%d" % n for n in range(40))
        shop.wait_for(lambda: len(shop.done) == shop.filled + 40, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert not any(value.startswith("hang") for value, _ in shop.done)


@pytest.mark.long
@pytest.mark.parametrize("many", [20, 400])
def test_a_topic_made_again_is_read_from_its_beginning(shop, many):
    """Also where a group would not notice it, and the new log is longer than the old one was."""
    shop.configure(offsetInitial="newest", **{"group.protocol": "classic"})
    with shop.running("--master", "local[2]", "--target-batch-duration", "1s", *OPTIONS) as (process, log):
        shop.wait_for(lambda: len(shop.committed()) == 8, log)
        shop.fill(b"old%d" % n for n in range(40))
        shop.wait_for(lambda: len(shop.done) == 40, log)
        shop.make_again(log)
        shop.fill(b"new%d" % n for n in range(many))
        shop.wait_for(lambda: len({value for value, _ in shop.done}) == 40 + many, log)
        shop.wait_for(lambda: sum(shop.committed().values()) == many, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert sum(shop.committed().values()) == many
    assert "was deleted and created again" in log.read_text()


@pytest.mark.long
def test_batches_last_as_long_as_was_said(shop):
    """While something hangs there is always a batch. Each of the usual ones would last ten seconds."""
    (shop.directory / "shop_app.py").write_text(HANGING)
    shop.configure(maxProcessingTime="10m")
    shop.fill([b"hang"])
    lengths = ("--target-batch-duration", "1s", "--max-batch-duration", "2s")

    def seconds() -> list[float]:
        return [one["value"] for one in shop.told if one["name"] == "spark.query.batch.seconds"]

    with shop.running("--master", "local[2]", *lengths, *OPTIONS) as (process, log):
        shop.wait_for(lambda: len(shop.done) == shop.filled and len(seconds()) >= 5, log)
        assert min(seconds()) < 10
        assert "hang" not in {value for value, _ in shop.done}
        shop.done_file.with_name("done-go-on").touch()
        shop.wait_for(lambda: len(shop.done) == shop.filled + 1, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert [value for value, _ in shop.done].count("hang") == 1
    assert_poison_is_seen(log.read_text())


@pytest.mark.long
def test_executors_come_with_the_work_and_go_with_it(shop, tmp_path):
    """Dynamic allocation: between batches there is nothing that needs a slot."""
    conf = {
        "spark.dynamicAllocation.enabled": "true",
        "spark.dynamicAllocation.minExecutors": "0",
        "spark.dynamicAllocation.executorIdleTimeout": "2s",
        "spark.executor.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.executorEnv.SHOP_DONE": str(shop.done_file),
        "spark.ui.enabled": "false",
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    with (
        standalone_cluster(tmp_path, 2) as master,
        shop.running("--master", master, "--members", "2", *options, PYSPARK_PYTHON=sys.executable) as (process, log),
    ):
        shop.wait_for(lambda: shop.is_shared(2), log)
        shop.wait_for(lambda: len(shop.done) == shop.filled, log)
        shop.wait_for(lambda: not executors(tmp_path), log)
        shop.fill([b"-1", b"-2", b"-3", b"-4"])
        shop.wait_for(lambda: len(shop.done) == shop.filled + 4, log)
        assert executors(tmp_path)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert sorted(int(value) for value, _ in shop.done) == list(range(-4, shop.filled))


@pytest.mark.long
def test_executors_that_cannot_start_are_reported_with_their_cause(shop, tmp_path):
    options = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executorEnv.JAVA_HOME=/no/such/java", *OPTIONS]
    with (
        standalone_cluster(tmp_path, 1) as master,
        shop.running("--master", master, "--members", "1", *options, PYSPARK_PYTHON=sys.executable) as (run, log),
    ):
        assert run.wait(2 * PATIENCE) == 1
    last = log.read_text().strip().splitlines()[-1]
    assert "Spark's executors do not start: " in last
    assert "/no/such/java/bin/java" in last


@pytest.mark.long
def test_a_cluster_that_is_too_small_is_reported_before_anything_is_read(shop, tmp_path):
    with standalone_cluster(tmp_path, 1) as master:
        options = ["--conf", "spark.driver.host=127.0.0.1", "--conf", "spark.executor.memory=512m", *OPTIONS]
        with shop.running("--master", master, "--members", "2", *options, PYSPARK_PYTHON=sys.executable) as (run, log):
            assert run.wait(2 * PATIENCE) == 1
        said = log.read_text()
    assert "the application cannot run: " in said
    assert "1 of 2 tasks found a slot within 120 s: ask for fewer with --members, or for more slots" in said
    assert shop.done == []
    assert shop.committed() == {}


DYING = MODULE.replace(
    "\n    with open(os",
    "\n    if record.value == b'deadly' and not os.path.exists(os.environ['SHOP_DONE'] + '-cured'): os._exit(1)"
    "\n    with open(os",
)


@pytest.mark.long
def test_a_query_that_fails_leaves_its_group_before_the_next_one_joins(shop):
    """A task whose worker dies each time fails the query at last. A broker would miss its member much later."""
    (shop.directory / "shop_app.py").write_text(DYING)
    shop.configure(crashLimit=0)  # or the record would be found to be poison
    shop.fill([b"deadly"])
    with shop.running("--master", "local[2]", *OPTIONS) as (process, log):
        shop.wait_for(lambda: "the query failed, restarting it" in log.read_text(), log)
        shop.done_file.with_name("done-cured").touch()
        shop.wait_for(lambda: "deadly" in {value for value, _ in shop.done}, log)
        with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
            assert len(admin.describe_groups([shop.name])[shop.name].members) == 1
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert {int(value) for value, _ in shop.done if value != "deadly"} == set(range(shop.filled))
