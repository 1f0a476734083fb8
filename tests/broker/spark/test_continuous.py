"""`multilane run --flow continuous`: an app in members on Spark, on one machine and on a cluster."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from broker.spark.clusters import connect_server, executors, standalone_cluster
from broker.spark.shop import MEMBERS, MODULE, PATIENCE, assert_one_member_is_named, assert_poison_is_seen
from multilane import Admin

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
    assert_poison_is_seen(log.read_text())


@pytest.mark.long
@pytest.mark.parametrize("flow", ["continuous", "batches"])
def test_partition_functions_and_records_name_the_member(shop, flow):
    (shop.directory / "shop_app.py").write_text(MEMBERS)
    with shop.running("--master", "local[1]", "--flow", flow, *OPTIONS[2:]) as (process, log):
        shop.wait_for(lambda: [what for what, _ in shop.done].count("handled") == shop.filled + 1, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert_one_member_is_named(shop)


@pytest.mark.parametrize("flow", [pytest.param("continuous", marks=pytest.mark.long), "batches"])
def test_a_signal_to_the_whole_process_group_ends_it_in_order_and_quietly(shop, flow):
    """As a terminal, a supervisor or `timeout` sends it: to Spark's JVM too, if that is in the group."""
    with shop.running("--master", "local[1]", "--flow", flow, *OPTIONS[2:]) as (process, log):
        shop.wait_for(shop.is_all_settled, log)
        before = len(log.read_text().splitlines())
        os.killpg(process.pid, signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    said = log.read_text().splitlines()[before:]
    assert len(said) <= 10, said
    assert not [line for line in said if "Traceback" in line or "Exception" in line or "\tat " in line]


@pytest.mark.parametrize(
    ("options", "environ", "said"),
    [
        (["--master", "local[2]", "--members", "3"], {}, "3 members need 3 slots, but local[2] offers only 2"),
        (["--master", "spark://127.0.0.1:1", "--members", "1"], {}, "no Spark master answers at spark://127.0.0.1:1"),
        (["--master", "local[1]"], {"JAVA_HOME": "/no/such/java"}, "JAVA_HOME is /no/such/java"),
        (["--master", "yarn"], {}, "the number of slots of yarn is not known here: set --members"),
        (["--master", "sc://127.0.0.1:1", "--members", "1"], {}, "--flow batches does not support Spark Connect yet"),
        (["--flow", "continuous", "--master", "sc://h:1", "--members", "1"], {}, "set its address with --host"),
        (
            ["--master", "local[1]", "--archive", "app.zip"],
            {},
            "no archive app.zip: make it with multilane",
        ),
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
        "import os\nif 'daemon pyspark.worker' in ' '.join(__import__('sys').orig_argv): import no_such_module\n"
        + MODULE
    )
    code, log = shop.run_to_its_end("--master", "local[1]", *OPTIONS)
    assert code == 1
    assert "member 0 cannot run: ModuleNotFoundError: No module named 'no_such_module'" in log
    assert shop.done == []
    assert shop.committed() == {}


# --- on a cluster ----------------------------------------------------------------------------------------------------


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
@pytest.mark.parametrize("flow", ["continuous", "batches"])
def test_an_executor_is_killed(shop, tmp_path, flow):
    """Spark brings another; what the one was at is handled again, and nothing is missing."""
    options = ["--flow", flow, "--conf", "spark.executor.memory=512m", "--conf", "spark.ui.enabled=false"]
    options += ["--conf", "spark.driver.host=127.0.0.1", "--conf", f"spark.executorEnv.SHOP_DONE={shop.done_file}"]
    with (
        standalone_cluster(tmp_path, 2) as master,
        shop.running("--master", master, "--members", "2", *options, PYSPARK_PYTHON=sys.executable) as (process, log),
    ):
        shop.wait_for(lambda: shop.is_shared(2), log)
        killed = executors(tmp_path)[0]
        os.kill(killed, signal.SIGKILL)
        shop.fill([b"%d" % -n for n in range(1, 41)])
        shop.wait_for(lambda: {int(value) for value, _ in shop.done} == set(range(-40, shop.filled)), log)
        shop.wait_for(lambda: len(executors(tmp_path)) == 2 and killed not in executors(tmp_path), log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]


ANNOUNCING = MODULE.replace(
    "\n    with open(os",
    "\n    app.producers.produce_async(Message('seen', record.value, record.value))\n    with open(os",
).replace("import App, Record", "import App, Message, Record")


@pytest.mark.long
@pytest.mark.parametrize("flow", ["continuous", "batches"])
def test_what_producers_were_given_is_sent_before_a_run_ends(shop, flow):
    """They wait for more for longer than all this takes, unless they are closed."""
    (shop.directory / "shop_app.py").write_text(ANNOUNCING)
    file = shop.directory / "multilane.yaml"
    told = json.loads(file.read_text())
    told["clusters"]["main"]["properties"] = {"linger.ms": 20_000}
    told["producers"] = {"seen": {"name": f"{shop.name}-seen", "cluster": "main"}}
    file.write_text(json.dumps(told))
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        admin.create_topics({f"{shop.name}-seen": 1})
    with shop.running("--master", "local[2]", "--flow", flow, *OPTIONS[2:]) as (process, log):
        shop.wait_for(lambda: len(shop.done) == shop.filled, log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        [end] = admin.offsets([(f"{shop.name}-seen", 0)]).values()
    assert end.offset == shop.filled


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
            [sys.executable, "-c", THROUGH_CONNECT, remote, shop.bootstrap, shop.name, str(tmp_path / "checkpoint")],
            capture_output=True,
            text=True,
            check=False,
        )
    assert told.returncode == 0, told.stderr[-4_000:]
    assert told.stdout.split()[-3:] == ["201", "402", "804"]


THROUGH_CONNECT = """
import sys
from pyspark.sql import SparkSession
remote, bootstrap, topic, folder = sys.argv[1:]
spark = SparkSession.builder.remote(remote).getOrCreate()
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
def read():
    return spark.read.format("multilane").options(**options).load()
before = read().count()
read().select("key", "value").write.format("multilane").options(
    **{"kafka.bootstrap.servers": bootstrap, "topic": topic}
).mode("append").save()
stream = spark.readStream.format("multilane").options(**options).load().select("key", "value").writeStream
stream = stream.format("multilane").options(**{"kafka.bootstrap.servers": bootstrap, "topic": topic})
after = read().count()
stream.option("checkpointLocation", folder).trigger(availableNow=True).start().awaitTermination()
print(before, after, read().count())
"""
