"""Runs pipeline.py on a Kafka of its own, and compares the table and the alerts with the sales that were sent.

    python examples/spark_pipeline/main.py [WAREHOUSE]

The tables stay in the directory WAREHOUSE. Without it they are deleted, as is all else, also after Ctrl-C.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from multilane import Admin, Consumer, MultilaneError, Producer, TopicPartition
from multilane.dev import KafkaCluster

PIPELINE = Path(__file__).with_name("pipeline.py")
ALERTS = TopicPartition("alerts", 0)
TOPICS = {"sales": 4, "sales.error": 1, ALERTS.topic: 1}
LARGE = 2_000
CATEGORIES = ("apples", "bread", "cheese")
ARTICLES: list[dict[str, Any]] = [
    {"article": n, "category": CATEGORIES[n % 3], "price": 10 + n, "alert_from": LARGE} for n in range(50)
]
SALES = [{"id": n, "article": n * 7 % 50, "pieces": 1 + n % 40} for n in range(5_000)]
PATIENCE_SECONDS = 300.0


def fill(brokers: str, warehouse: Path) -> None:
    (warehouse / "articles").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(ARTICLES), warehouse / "articles" / "all.parquet")
    with Admin({"bootstrap.servers": brokers}) as admin:
        admin.create_topics(TOPICS)
    with Producer({"bootstrap.servers": brokers}) as producer:
        producer.send_many(("sales", json.dumps(sale).encode(), b"%d" % sale["article"]) for sale in SALES).result()


def run_pipeline(brokers: str, warehouse: Path) -> None:
    log = warehouse / "pipeline.log"
    environ = os.environ | {"KAFKA_BROKERS": brokers, "PYSPARK_PYTHON": sys.executable}
    command = [sys.executable, str(PIPELINE), str(warehouse)]
    with log.open("wb") as out:
        # A process group of its own: Ctrl-C is for this script, which then ends the pipeline and Spark with it.
        process = subprocess.run(
            command, env=environ, stdout=out, stderr=out, process_group=0, timeout=PATIENCE_SECONDS, check=False
        )
    if process.returncode != 0:
        sys.exit(f"failed: the pipeline has ended with exit code {process.returncode}\n{log.read_text()}")


def alerted(brokers: str) -> set[int]:
    """The sales that have an alert. When a task was run again, some have two."""
    with Consumer({"bootstrap.servers": brokers, "auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([ALERTS])
        end = consumer.end_offsets([ALERTS])[ALERTS]
        found: list[int] = []
        while len(found) < end:
            found += (json.loads(record.value or b"")["id"] for record in consumer.poll().records())
    return set(found)


def priced(sale: dict[str, Any]) -> dict[str, Any]:
    article = ARTICLES[sale["article"]]
    return sale | {"category": article["category"], "revenue": sale["pieces"] * article["price"]}


def main(warehouse: Path) -> int:
    with KafkaCluster() as kafka:
        fill(kafka.bootstrap(), warehouse)
        print(f"Kafka runs on {kafka.bootstrap()} and has {len(SALES)} sales")
        run_pipeline(kafka.bootstrap(), warehouse)
        alerts = alerted(kafka.bootstrap())
    table = pq.read_table(warehouse / "sales").sort_by("id").to_pylist()
    print(f"the table has {len(table)} sales of {sum(sale['revenue'] for sale in table)} in all")
    wanted = [priced(sale) for sale in SALES]
    large = {sale["id"] for sale in wanted if sale["revenue"] >= LARGE}
    if table != wanted or alerts != large:
        print(f"failed: {len(wanted)} sales were sent, and {len(large)} of them are large", file=sys.stderr)
        return 1
    print(f"ok: each sale is in the table once and has its price, and the {len(large)} large ones have an alert")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: stop what was started
    place = nullcontext(sys.argv[1]) if len(sys.argv) > 1 else TemporaryDirectory(prefix="multilane-spark-")
    try:
        with place as folder:
            sys.exit(main(Path(folder)))
    except KeyboardInterrupt:
        sys.exit("stopped")
    except (MultilaneError, subprocess.TimeoutExpired) as error:
        sys.exit(f"failed: {error}")
