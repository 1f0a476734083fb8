"""What Spark's queries tell of themselves: plain ones, and the query of a run in batches."""

from __future__ import annotations

import json
import signal
import urllib.request

import pytest
from pyspark.errors import StreamingQueryException

from broker.spark.shop import OBSERVED, PATIENCE
from multilane.metrics.observer import Counts
from multilane.spark.query_listener import ENDED, FAILED, listening

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.long, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def start(table, tmp_path):
    """A query of a topic, until it has read all there is."""

    def begin(topic: str, name: str, *columns: str):
        rows = table(topic, is_stream=True, startingOffsets="earliest").selectExpr(*columns)
        writing = rows.writeStream.format("noop").queryName(name)
        writing = writing.option("checkpointLocation", str(tmp_path / name)).trigger(availableNow=True)
        return writing.start()

    return begin


def test_a_plain_query_is_counted_and_its_end_is_heard(spark, topic, fill, start):
    name, counts = topic(2), Counts()
    fill(name, [(b"%d" % n, b"k", (), n % 2) for n in range(300)])
    with listening(spark, counts) as listener:
        query = start(name, "orders", "value")
        query.awaitTermination()
        broken = start(name, "broken", "raise_error('never mind')")
        with pytest.raises(StreamingQueryException):
            broken.awaitTermination()
    assert counts.by("query", "spark.query.started") == {"orders": 1, "broken": 1}
    assert counts.by("query", "spark.query.rows")["orders"] == 300
    assert counts.by("query", "spark.query.batches")["orders"] >= 1
    assert counts.by("query", "spark.query.batch.seconds")["orders"] > 0
    assert counts.by("query", "spark.query.ended") == {"orders": 1}
    assert counts.by("query", "spark.query.failed") == {"broken": 1}
    states = {known.name: known for known in listener.queries.values()}
    assert (states["orders"].state, states["broken"].state) == (ENDED, FAILED)
    assert "never mind" in states["broken"].reason
    before = counts.snapshot()
    start(name, "unheard", "value").awaitTermination()
    assert counts.snapshot() == before, "it is removed"


def test_an_observer_that_fails_does_not_break_a_query(spark, topic, fill, start, caplog):
    class Broken:
        def count(self, name, value=1, **labels):
            raise RuntimeError("no disk")

    name = topic(1)
    fill(name, [(b"v", b"k", (), 0)])
    with listening(spark, Broken()):
        query = start(name, "observed", "value")
        query.awaitTermination()
    assert query.exception() is None
    assert "cannot pass on an event of a query" in caplog.text


def test_a_run_tells_its_observer_and_shows_in_sparks_interface(shop):
    (shop.directory / "shop_app.py").write_text(OBSERVED)
    options = ("--master", "local[2]", "--conf", "spark.ui.enabled=true", "--conf", "spark.ui.port=0")
    with shop.running(*options) as (process, log):
        shop.wait_for(lambda: any(one["name"] == "spark.query.batches" for one in shop.told), log)
        url = shop.told[0]["url"]
        (application,) = fetched(f"{url}/api/v1/applications")
        jobs = fetched(f"{url}/api/v1/applications/{application['id']}/jobs")
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0, log.read_text()[-4_000:]
    assert application["name"] == "multilane shop_app:app"
    title = "multilane shop_app:app: orders"
    assert jobs
    assert all(title in job["description"] for job in jobs)
    assert {one["query"] for one in shop.told} == {title}
    assert {one["name"] for one in shop.told} >= {
        "spark.query.started",
        "spark.query.batches",
        "spark.query.rows",
        "spark.query.batch.seconds",
        "spark.query.ended",
    }
    assert log.read_text().count("Traceback") <= 1, "that of the poison"


def fetched(address: str):
    with urllib.request.urlopen(address, timeout=30) as answer:  # noqa: S310 - this machine's own
        return json.load(answer)
