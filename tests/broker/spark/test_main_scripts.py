"""A script that is run as `__main__` and holds its own app: the driver says what to do, and no worker fails."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.broker, pytest.mark.slow]

APP = """
from multilane import App, Record
app = App("multilane.yaml")
"""
LISTENER = """
@app.listener("orders")
async def index(record: Record) -> None:
    open("seen", "a").close()
"""
# Spark's own daemon loads multiprocessing, which calls the script __mp_main__ too.
HANDLE = """
import json, multiprocessing
from multilane.spark.session import QUICK_START, start_session
settings = {"spark.ui.enabled": "false", "spark.log.level": "OFF", **QUICK_START}
spark = start_session("local[1]", "script", settings)
cluster = json.load(open("multilane.yaml"))["clusters"]["main"]["brokers"]
topic = app.config.consumers["orders"].topic
frame = spark.read.format("multilane").options(**{"kafka.bootstrap.servers": cluster, "subscribe": topic}).load()
app.handle(frame, "orders").collect()
"""
RUN = """
from multilane.engines.spark_run import SparkSettings, run_on_spark
run_on_spark("__main__:app", SparkSettings(master="local[1]"))
"""
SCRIPTS = {
    "handle": APP + LISTENER + HANDLE,
    "listener in the script": "from shared import *\n" + LISTENER + HANDLE,
    "app in the script": APP + "from listeners import index\napp.listener('orders')(index)\n" + HANDLE,
    "run": APP + LISTENER + RUN,
}
SAID = {
    "handle": "the listener index is in the running script",
    "listener in the script": "the listener index is in the running script",
    "app in the script": "no loaded module has the application",
    "run": "'__main__:app' is the running script",
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.long] if HANDLE in SCRIPTS[n] else []) for n in SCRIPTS]
)
def test_an_app_of_a_script_is_refused_by_the_driver(tmp_path, kafka, topic, fill, name):
    orders = topic(1)
    fill(orders, [(b"v", b"k")] * 3)
    consumer = {"groupId": orders, "name": orders, "cluster": "main", "offsetInitial": "oldest", "onFailure": "drop"}
    clusters = {"main": {"clientId": "script", "brokers": kafka.bootstrap()}}
    (tmp_path / "multilane.yaml").write_text(json.dumps({"clusters": clusters, "consumers": {"orders": consumer}}))
    (tmp_path / "shared.py").write_text(APP)
    (tmp_path / "listeners.py").write_text("from multilane import Record\nasync def index(record: Record): ...\n")
    (tmp_path / "script.py").write_text(SCRIPTS[name])
    command = [sys.executable, "script.py"]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    last = ended.stderr.strip().splitlines()[-1]
    assert ended.returncode == 1, ended.stderr
    assert last.startswith(f"multilane.errors.TargetNotFound: {SAID[name]}"), ended.stderr
    assert "Move the app and its listeners out of the running script" in last
    assert "Py4JJavaError" not in ended.stderr
    assert "PythonException" not in ended.stderr
    assert not (tmp_path / "seen").exists()
