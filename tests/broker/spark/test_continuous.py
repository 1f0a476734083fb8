"""`multilane run --flow continuous`: an app in members on Spark, on one machine and on a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker.spark.shop import MODULE, PATIENCE
from multilane.dev.ports import free_ports
from multilane.errors import SparkStartError
from multilane.spark.session import check_reachable

pytestmark = [pytest.mark.broker, pytest.mark.slow]

OPTIONS = ("--flow", "continuous", "--conf", "spark.ui.enabled=false")


@pytest.mark.long
def test_members_share_the_work_and_end_in_order(shop):
    with shop.running("--master", "local[2]", *OPTIONS) as (process, log):
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
        (["--master", "sc://127.0.0.1:1", "--members", "1"], {}, "--flow batches is not for Spark Connect yet"),
        (["--flow", "continuous", "--master", "sc://h:1", "--members", "1"], {}, "say how with --host"),
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


@pytest.mark.long
def test_a_module_that_workers_cannot_import(shop):
    """It is there for the driver only."""
    (shop.directory / "shop_app.py").write_text(
        "import os\nif 'pyspark.daemon' in ' '.join(__import__('sys').orig_argv): import no_such_module\n" + MODULE
    )
    code, log = shop.run_to_its_end("--master", "local[1]", *OPTIONS)
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
@pytest.mark.parametrize("flow", ["continuous", "batches"])
def test_a_cluster_runs_what_was_packed(shop, tmp_path, flow):
    packed = [sys.executable, "-m", "multilane", "pack", "app.zip"]
    subprocess.run(packed, cwd=shop.directory, check=True)
    options = ["--flow", flow, "--archive", "app.zip", "--conf", "spark.executor.memory=512m"]
    options += ["--conf", "spark.ui.enabled=false"]
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
        options = ["--flow", "continuous", "--master", remote, "--members", "2", "--host", "127.0.0.1"]
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
