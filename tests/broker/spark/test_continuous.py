"""`multilane run --engine spark`: an app in members on Spark, on one machine and on a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from multilane import Admin
from multilane.clock import SystemClock
from multilane.dev.ports import free_ports
from multilane.errors import MultilaneError, SparkStartError
from multilane.spark.session import check_reachable

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PATIENCE = 120.0
CLOCK = SystemClock()
MODULE = """
import os
from multilane import App, Record
app = App("multilane.yaml")
@app.listener("orders")
async def index(record: Record) -> None:
    if record.value == b"poison":
        raise ValueError("never")
    with open(os.environ["SHOP_DONE"], "a") as done:
        done.write(f"{record.value.decode()} {os.environ['MULTILANE_MEMBER']}\\n")
"""


class Shop:
    """An app's directory, and a topic with records for it."""

    def __init__(self, directory: Path, bootstrap: str, fill) -> None:
        self.directory, self.bootstrap, self.name = directory, bootstrap, f"shop-{uuid.uuid4().hex[:8]}"
        self._fill, self.filled = fill, 200
        self.done_file = directory.parent / "done"
        self.done_file.touch()
        directory.mkdir()
        (directory / "shop_app.py").write_text(MODULE)
        consumer = {"groupId": self.name, "name": self.name, "cluster": "main", "virtualPartitionCount": 5}
        consumer |= {"retry": f"{self.name}-retry", "error": f"{self.name}-error", "retryCount": 1}
        told = {
            "clusters": {"main": {"clientId": "shop", "brokers": bootstrap}},
            "consumers": {"orders": consumer | {"offsetInitial": "oldest"}},
        }
        (directory / "multilane.yaml").write_text(json.dumps(told))
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics({self.name: 4, f"{self.name}-retry": 4, f"{self.name}-error": 1})
        fill(self.name, [(b"%d" % i, b"k%d" % i, (), i % 4) for i in range(200)] + [(b"poison", b"p", (), 0)])

    def is_shared(self, members: int) -> bool:
        """Every member has handled something; until then there is always something to do."""
        if len(self.done) == self.filled:
            more = range(self.filled, self.filled + 40)
            self._fill(self.name, [(b"%d" % i, b"k%d" % i, (), i % 4) for i in more])
            self.filled += 40
        return len({member for _, member in self.done}) == members

    @contextmanager
    def running(self, *options: str, cwd: Path | None = None, **environ: str):
        command = [sys.executable, "-m", "multilane", "run", "shop_app:app", "--engine", "spark", *options]
        log = self.directory.parent / f"log-{uuid.uuid4().hex[:6]}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
        told = inherited | {"SHOP_DONE": str(self.done_file)} | environ
        with log.open("wb") as out:
            process = subprocess.Popen(command, cwd=cwd or self.directory, env=told, stdout=out, stderr=out)
        try:
            yield process, log
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def run_to_its_end(self, *options: str, **environ: str) -> tuple[int, str]:
        with self.running(*options, **environ) as (process, log):
            return process.wait(PATIENCE), log.read_text()

    @property
    def done(self) -> list[tuple[str, str]]:
        return [tuple(line.split()) for line in self.done_file.read_text().splitlines()]

    def wait_for(self, condition, log: Path) -> None:
        deadline = CLOCK.monotonic() + PATIENCE
        while not condition():
            assert CLOCK.monotonic() < deadline, log.read_text()[-4_000:]
            threading.Event().wait(0.1)

    def committed(self) -> dict[str, int]:
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            try:
                return {str(p): int(place.offset) for p, place in admin.group_offsets(self.name).items()}
            except MultilaneError:
                return {}

    def is_all_settled(self) -> bool:
        committed = self.committed()
        return [committed.get(f"{self.name}-{n}", 0) for n in range(4)] == [51, 50, 50, 50] and sum(
            offset for place, offset in committed.items() if "-retry-" in place
        ) == 1


@pytest.fixture
def shop(tmp_path, kafka, fill):
    return Shop(tmp_path / "shop", kafka.bootstrap(), fill)


def test_members_share_the_work_and_end_in_order(shop):
    with shop.running("--master", "local[2]", "--conf", "spark.ui.enabled=false") as (process, log):
        shop.wait_for(shop.is_all_settled, log)
        shop.wait_for(lambda: shop.is_shared(2), log)
        shop.wait_for(lambda: len(shop.done) == shop.filled, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert sorted(int(value) for value, _ in shop.done) == list(range(shop.filled))
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize(
    ("options", "environ", "said"),
    [
        (["--master", "local[2]", "--members", "3"], {}, "3 members need 3 slots, and local[2] has 2"),
        (["--master", "spark://127.0.0.1:1", "--members", "1"], {}, "nobody answers at spark://127.0.0.1:1"),
        (["--master", "local[1]"], {"JAVA_HOME": "/no/such/java"}, "JAVA_HOME is /no/such/java"),
        (["--master", "yarn"], {}, "how many slots yarn will have is not known here: say --members"),
        (["--master", "sc://127.0.0.1:1", "--members", "1"], {}, "say how with --host"),
        (["--master", "local[1]", "--archive", "app.zip"], {}, "there is no archive app.zip: multilane pack app.zip"),
        pytest.param(
            ["--master", "local[1]", "--conf", "spark.speculation=true"],
            {},
            "spark.speculation is on",
            marks=pytest.mark.long,
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line_before_anything_is_read(shop, options, environ, said):
    code, log = shop.run_to_its_end(*options, **environ)
    assert code == 1
    assert said in log
    assert "Traceback" not in log
    assert shop.done == []
    assert shop.committed() == {}


def test_a_module_that_workers_cannot_import(shop):
    """It is there for the driver only."""
    (shop.directory / "shop_app.py").write_text(
        "import os\nif 'pyspark.daemon' in ' '.join(__import__('sys').orig_argv): import no_such_module\n" + MODULE
    )
    code, log = shop.run_to_its_end("--master", "local[1]", "--conf", "spark.ui.enabled=false")
    assert code == 1
    assert "member 0 cannot run: ModuleNotFoundError: No module named 'no_such_module'" in log
    assert shop.done == []
    assert shop.committed() == {}


# --- on a cluster ----------------------------------------------------------------------------------------------------


@contextmanager
def standalone_cluster(directory: Path, workers: int):
    """Spark's own master and workers, as processes on this machine."""
    import pyspark

    home = Path(pyspark.__file__).parent
    [port] = free_ports(1)
    master = f"spark://127.0.0.1:{port}"
    environ = dict(os.environ) | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    common = ["--host", "127.0.0.1", "--webui-port", "0"]
    room = ["--cores", "1", "--memory", "1g", "--work-dir", str(directory)]
    commands = [["master.Master", *common, "--port", str(port)]]
    commands += [["worker.Worker", *common, *room, master]] * workers
    with (directory / "cluster.log").open("wb") as out:
        processes = [
            subprocess.Popen(
                [str(home / "bin/spark-class"), f"org.apache.spark.deploy.{program}", *options],
                env=environ,
                stdout=out,
                stderr=out,
            )
            for program, *options in commands
        ]
    try:
        while not is_reachable(master):
            assert processes[0].poll() is None, (directory / "cluster.log").read_text()[-4_000:]
            threading.Event().wait(0.2)
        yield master
    finally:
        for process in reversed(processes):
            process.kill()
            process.wait()


@contextmanager
def connect_server(directory: Path):
    """Spark's server for Spark Connect, with three slots."""
    import pyspark

    home = Path(pyspark.__file__).parent
    [port] = free_ports(1)
    conf = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": port,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin/spark-submit"), "--master", "local[3,4]"]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environ = dict(os.environ) | {"SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"}
    environ |= {"PYSPARK_PYTHON": sys.executable}
    with (directory / "connect.log").open("wb") as out:
        process = subprocess.Popen(command, env=environ, stdout=out, stderr=out)
    try:
        while not is_reachable(f"sc://127.0.0.1:{port}"):
            assert process.poll() is None, (directory / "connect.log").read_text()[-4_000:]
            threading.Event().wait(0.2)
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def is_reachable(master: str) -> bool:
    try:
        check_reachable(master)
    except SparkStartError:
        return False
    return True


@pytest.mark.long
def test_a_cluster_runs_what_was_packed(shop, tmp_path):
    packed = [sys.executable, "-m", "multilane", "pack", "app.zip"]
    subprocess.run(packed, cwd=shop.directory, check=True)
    options = ["--archive", "app.zip", "--conf", "spark.ui.enabled=false", "--conf", "spark.executor.memory=512m"]
    options += ["--conf", "spark.driver.host=127.0.0.1", "--conf", f"spark.executorEnv.SHOP_DONE={shop.done_file}"]
    with (
        standalone_cluster(tmp_path, 2) as master,
        shop.running("--master", master, "--members", "2", *options, PYSPARK_PYTHON=sys.executable) as (process, log),
    ):
        shop.wait_for(lambda: shop.is_shared(2), log)
        shop.wait_for(lambda: len(shop.done) == shop.filled, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert sorted(int(value) for value, _ in shop.done) == list(range(shop.filled))


@pytest.mark.long
def test_through_spark_connect(shop, tmp_path, monkeypatch):
    """The app, and the source and the sink, in a server that this process reaches by gRPC alone."""
    monkeypatch.setenv("SHOP_DONE", str(shop.done_file))
    with connect_server(tmp_path) as remote:
        options = ["--master", remote, "--members", "2", "--host", "127.0.0.1"]
        with shop.running(*options) as (process, log):
            shop.wait_for(shop.is_all_settled, log)
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
        assert sorted(int(value) for value, _ in shop.done) == list(range(200))
        told = subprocess.run(
            [sys.executable, "-c", THROUGH_CONNECT, remote, shop.bootstrap, shop.name],
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.returncode == 0, told.stderr[-4_000:]
    assert told.stdout.split()[-2:] == ["201", "402"]


THROUGH_CONNECT = """
import sys
from pyspark.sql import SparkSession
remote, bootstrap, topic = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
def read():
    return spark.read.format("multilane").options(**options).load()
before = read().count()
read().select("key", "value").write.format("multilane").options(
    **{"kafka.bootstrap.servers": bootstrap, "topic": topic}
).mode("append").save()
print(before, read().count())
"""
