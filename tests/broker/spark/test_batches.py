"""`multilane run`: an app as a streaming query, whose tasks are lent its partitions."""

from __future__ import annotations

import signal

import pytest

from broker.spark.shop import MODULE, PATIENCE
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
    assert "Traceback" not in log.read_text()


@pytest.mark.long
def test_a_module_that_workers_cannot_import(shop):
    """It is there for the driver and the keeper only."""
    (shop.directory / "shop_app.py").write_text(
        "import threading\nif threading.current_thread().name == 'MainThread' and 'pyspark.daemon' in ' '.join("
        "__import__('sys').orig_argv): import no_such_module\n" + MODULE
    )
    code, log = shop.run_to_its_end("--master", "local[1]", *OPTIONS)
    assert code == 1
    assert "the application cannot run: ModuleNotFoundError: No module named 'no_such_module'" in log
    assert shop.done == []
