"""The examples as a person runs them: each by its one command, with a Kafka of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow.parquet as pq
import pytest

pytestmark = [pytest.mark.broker, pytest.mark.slow]

EXAMPLES = Path(__file__).parents[3] / "examples"
PATIENCE = 380.0  # half a minute each by itself; only what hangs takes this long
SHARED = "multilane-ports-"  # the ports that every Kafka on this machine reserves


def processes_of(folder: str) -> list[int]:
    """The processes that have this directory in their environment: what was started there inherits it."""
    found = []
    for environ in Path("/proc").glob("[0-9]*/environ"):
        with suppress(OSError):  # it has ended meanwhile
            found += [int(environ.parent.name)] if folder.encode() in environ.read_bytes() else []
    return found


@pytest.fixture
def run_example(eventually) -> Iterator[Callable[..., list[str]]]:
    """`run_example(name, *arguments)`: the lines that it prints. It must succeed, and leave nothing behind."""
    with TemporaryDirectory(prefix="examples-") as folder:
        Path(folder).chmod(0o755)  # as /tmp: for root a database runs as another user

        def run(name: str, *arguments: str | Path) -> list[str]:
            with subprocess.Popen(
                [sys.executable, EXAMPLES / name / "main.py", *arguments],
                cwd=folder,
                env=os.environ | {"TMPDIR": folder},
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            ) as process:
                try:
                    printed, errors = process.communicate(timeout=PATIENCE)
                finally:
                    process.terminate()  # one that hangs stops what it has started
            assert process.returncode == 0, printed + errors
            return printed.splitlines()

        yield run
        eventually(lambda: processes_of(folder) == [])
        assert [path.name for path in Path(folder).iterdir() if not path.name.startswith(SHARED)] == []


def test_an_http_service_gets_each_order_once(run_example):
    *printed, last = run_example("http_service")
    assert last == "ok: each order was delivered once, and each customer's orders in order"
    assert "399 orders were delivered, 44 of them after a 503" in printed
    assert any(re.match(r"order 123 is in orders.error: ClientResponseError: 422", line) for line in printed)


def test_a_table_has_each_row_once_although_the_app_was_killed(run_example):
    *printed, last = run_example("postgres")
    assert last == "ok: the table has 1000 articles, each once and with its newest level"
    [stored] = re.findall(r"^killed the app within a batch: the table has (\d+) of 1000 articles$", printed[0])
    assert int(stored) < 1000, "a batch was in flight"


def test_a_spark_pipeline_writes_each_sale_once_and_alerts_for_the_large_ones(run_example, tmp_path):
    *_, last = run_example("spark_pipeline", tmp_path)
    assert last == "ok: each sale is in the table once and has its price, and the 100 large ones have an alert"
    table = pq.read_table(tmp_path / "sales").to_pydict()
    assert sorted(table["id"]) == list(range(5_000))
    assert sum(table["revenue"]) == sum((10 + n * 7 % 50) * (1 + n % 40) for n in range(5_000))
    assert pq.read_table(tmp_path / "alerts")["outcome"].to_pylist() == ["done"] * 100
