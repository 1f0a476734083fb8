"""`multilane backfill` as a person uses it: over a history, killed, ended and gone on with, beside a live group."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections import Counter, defaultdict
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.spark.clusters import standalone_cluster
from broker.spark.shop import CLOCK, PATIENCE, assert_poison_is_seen
from multilane import Admin, Consumer

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OPTIONS = ("--conf", "spark.ui.enabled=false", "--log-level", "info")
RECORDS = 2_000
MODULE = """
import asyncio
import os
from multilane import App, Record
app = App("multilane.yaml")
done = open(os.environ["SHOP_DONE"], "a")
@app.listener("orders")
async def index(record: Record) -> None:
    await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=float(os.environ.get("SHOP_SECONDS", "0")))
    if record.value == b"poison":
        raise ValueError("never")
    done.write(f"{record.partition} {record.offset} {record.key.decode()} {os.getpid()}\\n")
    done.flush()
"""


class Backfill:
    """A shop with a history, and runs of the command over it."""

    def __init__(self, shop, fill):
        self.shop = shop
        (shop.directory / "shop_app.py").write_text(MODULE)
        self.name = f"{shop.name}-history"
        settings = json.loads((shop.directory / "multilane.yaml").read_text())
        settings["consumers"]["orders"] |= {"name": self.name, "groupId": self.name}
        (shop.directory / "multilane.yaml").write_text(json.dumps(settings))
        with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
            admin.create_topics({self.name: 4})
        fill(self.name, [(b"%d" % i, b"k%d" % (i % 97), (), i % 97 % 4) for i in range(RECORDS)])
        self.state = shop.directory.parent / "state"

    @contextmanager
    def running(self, *options: str, **environ: str):
        command = [sys.executable, "-m", "multilane", "backfill", "shop_app:app", "orders", *OPTIONS]
        command += ["--state", str(self.state), "--master", "local[2]", *options]
        log, out = (self.shop.directory.parent / f"{name}-{uuid.uuid4().hex[:6]}" for name in ("log", "out"))
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
        told = inherited | {"SHOP_DONE": str(self.shop.done_file)} | environ
        with log.open("wb") as errors, out.open("wb") as output:
            process = subprocess.Popen(command, cwd=self.shop.directory, env=told, stdout=output, stderr=errors)
        try:
            yield process, log, out
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def run_to_its_end(self, *options: str, **environ: str) -> tuple[int, str, str]:
        with self.running(*options, **environ) as (process, log, out):
            return process.wait(PATIENCE), out.read_text(), log.read_text()

    @property
    def done(self) -> list[tuple[int, int, str, int]]:
        lines = [line.split() for line in self.shop.done_file.read_text().splitlines()]
        return [(int(partition), int(offset), key, int(pid)) for partition, offset, key, pid in lines]

    def handled(self) -> Counter[tuple[int, int]]:
        return Counter((partition, offset) for partition, offset, *_ in self.done)

    def by_process_and_key(self) -> dict[tuple[int, str], list[int]]:
        found = defaultdict(list)
        for _, offset, key, pid in self.done:
            found[pid, key].append(offset)
        return found

    def assert_nothing_is_lost(self) -> None:
        assert len(self.handled()) == RECORDS
        for offsets in self.by_process_and_key().values():
            assert offsets == sorted(set(offsets)), "within a life of a task a key is in order, and nothing comes twice"
        newest = {(partition, key): offset for partition, offset, key, _ in self.done}
        for partition, offset, key, _ in self.done:
            assert newest[partition, key] >= offset, "the newest of a key has the last word"

    @property
    def progress(self) -> dict:
        path: Path = self.state / "progress.json"
        return json.loads(path.read_text()) if path.exists() else {"records": 0}

    def wait_for_some(self, log: Path, many: int = 300) -> None:
        self.shop.wait_for(lambda: self.progress["records"] > many, log)


@pytest.fixture
def backfill(shop, fill):
    return Backfill(shop, fill)


@contextmanager
def live_member(backfill):
    """Of the group, with something committed and something not."""
    properties = {"bootstrap.servers": backfill.shop.bootstrap, "group.id": backfill.name}
    with Consumer(properties | {"auto.offset.reset": "earliest", "enable.auto.commit": False}) as consumer:
        consumer.subscribe([backfill.name])
        deadline = CLOCK.monotonic() + PATIENCE
        while not consumer.poll(timeout=1.0):
            assert CLOCK.monotonic() < deadline
        consumer.commit()
        yield


def group_of(backfill):
    with Admin({"bootstrap.servers": backfill.shop.bootstrap}) as admin:
        group = admin.describe_groups([backfill.name])[backfill.name]
        return sorted(member.id for member in group.members), group.state, admin.group_offsets(backfill.name)


@pytest.mark.long
def test_all_of_history_in_order_while_the_group_goes_on_as_it_was(backfill, fill):
    fill(backfill.name, [(b"poison", b"p", (), 1)])
    with live_member(backfill):
        before = group_of(backfill)
        assert before[0]
        assert before[2]
        code, out, log = backfill.run_to_its_end("--from", "earliest", "--output", "json")
        assert group_of(backfill) == before
    assert code == 1, log[-4_000:]
    told = json.loads(out)
    assert (told["through"], told["failed"], told["this_run"]["records"]) == (True, 1, RECORDS + 1)
    assert f"1 record failed: listed in {backfill.state}/failed.jsonl" in log
    [failed] = map(json.loads, (backfill.state / "failed.jsonl").read_text().splitlines())
    assert (failed["topic"], failed["partition"], failed["error"]) == (backfill.name, 1, "ValueError")
    assert set(backfill.handled().values()) == {1}
    backfill.assert_nothing_is_lost()
    assert len({pid for *_, pid in backfill.done}) == 2, "both tasks had something to do"
    assert backfill.shop.committed() == {}
    assert_poison_is_seen(log, failed="failed 2, retried 1, dead 1")


@pytest.mark.long
@pytest.mark.timeout(600)
def test_ended_in_order_and_gone_on_with(backfill):
    with backfill.running("--from", "earliest", SHOP_SECONDS="0.02") as (process, log, _):
        backfill.wait_for_some(log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 4, log.read_text()[-4_000:]
        assert "offsets left: start it again with --state" in log.read_text()
    assert sum(backfill.handled().values()) == backfill.progress["records"] < RECORDS
    code, out, log = backfill.run_to_its_end()
    assert code == 0, log[-4_000:]
    assert "all runs" in out
    assert set(backfill.handled().values()) == {1}
    backfill.assert_nothing_is_lost()
    code, _, log = backfill.run_to_its_end()
    assert code == 0, "it is through already"
    assert "task" not in log


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_worker_is_killed_and_spark_starts_its_task_again(backfill):
    with backfill.running("--from", "earliest", SHOP_SECONDS="0.02") as (process, log, _):
        backfill.wait_for_some(log)
        killed = backfill.done[-1][3]
        os.kill(killed, signal.SIGKILL)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert len({pid for *_, pid in backfill.done}) >= 3
    backfill.assert_nothing_is_lost()
    assert sum(backfill.handled().values()) < 1.5 * RECORDS, "only what was not told is done again"


@pytest.mark.long
@pytest.mark.timeout(600)
def test_the_run_is_killed_and_gone_on_with(backfill):
    with backfill.running("--from", "earliest", SHOP_SECONDS="0.02") as (process, log, _):
        backfill.wait_for_some(log)
        process.kill()
        process.wait()
        done = 0

        def is_quiet():
            nonlocal done
            before, done = done, len(backfill.done)
            return before == done

        backfill.shop.wait_for(is_quiet, log)
    known = backfill.progress["records"]
    code, _, log = backfill.run_to_its_end()
    assert code == 0, log[-4_000:]
    assert backfill.progress["records"] == RECORDS
    backfill.assert_nothing_is_lost()
    assert sum(backfill.handled().values()) <= 2 * RECORDS - known


@pytest.mark.long
@pytest.mark.timeout(600)
def test_what_would_be_the_same_next_time_ends_it_at_once(backfill):
    (backfill.shop.directory / "shop_app.py").write_text(
        "import sys\nif 'daemon pyspark.worker' in ' '.join(sys.orig_argv): import no_such_module\n" + MODULE
    )
    code, _, log = backfill.run_to_its_end("--from", "earliest")
    assert code == 1
    assert "failed: ModuleNotFoundError: No module named 'no_such_module'" in log
    assert "ERROR Executor" not in log, "Spark is not bothered with it"
    assert backfill.done == []


@pytest.mark.long
def test_another_range_or_directory_is_refused(backfill):
    """Before Spark is started."""
    backfill.state.mkdir()
    (backfill.state / "something").touch()
    code, _, log = backfill.run_to_its_end("--from", "earliest")
    assert code == 1
    assert "has no backfill in it, but something: set --state to a directory that is new or empty" in log
    (backfill.state / "something").unlink()
    code, _, log = backfill.run_to_its_end()
    assert (code, "set --from to start one" in log) == (1, True)
    code, _, log = backfill.run_to_its_end("--from", "earliest", "--master", "bogus")
    assert (code, "'bogus' is not a Spark master" in log) == (1, True)
    code, _, log = backfill.run_to_its_end("--from", "2026-01-01")
    assert code == 1
    assert "has a backfill from earliest, not 2026-01-01T00:00:00.000+00:00. To continue it, omit" in log


@pytest.mark.long
def test_a_history_on_a_cluster(backfill, tmp_path):
    """Each executor unpacks the application, and reaches the driver with what it has handled."""
    subprocess.run([sys.executable, "-m", "multilane", "pack", "app.zip"], cwd=backfill.shop.directory, check=True)
    options = ["--from", "earliest", "--archive", "app.zip", "--tasks", "2", "--conf", "spark.executor.memory=512m"]
    options += ["--conf", "spark.driver.host=127.0.0.1"]
    options += ["--conf", f"spark.executorEnv.SHOP_DONE={backfill.shop.done_file}"]
    with standalone_cluster(tmp_path, 2) as master:
        code, out, log = backfill.run_to_its_end(*options, "--master", master, PYSPARK_PYTHON=sys.executable)
    assert code == 0, out + log[-4_000:]
    assert set(backfill.handled().values()) == {1}
    assert len({pid for *_, pid in backfill.done}) == 2, "both executors had a part"
    backfill.assert_nothing_is_lost()


@pytest.mark.long
def test_a_cluster_without_a_slot_is_reported_and_nothing_is_done(backfill, tmp_path):
    options = ["--from", "earliest", "--conf", "spark.driver.host=127.0.0.1"]
    with (
        standalone_cluster(tmp_path, 0) as master,
        backfill.running(*options, "--master", master, PYSPARK_PYTHON=sys.executable) as (process, log, _),
    ):
        assert process.wait(2 * PATIENCE) == 1
        said = log.read_text()
    assert "error: no task found a slot within 120 s: Spark has no executor for this run." in said
    assert backfill.done == []
