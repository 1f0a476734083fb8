"""Joins the sales of a topic with a Parquet table of articles, appends them to another one, and alerts for large ones.

    KAFKA_BROKERS=localhost:9092 PYSPARK_PYTHON=$(which python) python pipeline.py WAREHOUSE

Handles what is in the topic, and ends. The next run continues from the checkpoints in the same directory.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pydantic import BaseModel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from alerts import app

LOCAL = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class Sale(BaseModel):
    id: int
    article: int
    pieces: int


def append(rows: DataFrame, table: str, warehouse: str) -> StreamingQuery:
    writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{warehouse}/checkpoints/{table}")
    return writer.trigger(availableNow=True).start(f"{warehouse}/{table}")


def run(spark: SparkSession, warehouse: str) -> None:
    articles = F.broadcast(spark.read.parquet(f"{warehouse}/articles"))
    sales = app.stream("sales", Sale, spark=spark).select("*", "payload.*")
    priced = sales.join(articles, "article").withColumn("revenue", F.expr("pieces * price"))

    record = F.expr("cast(to_json(struct(id, revenue)) AS binary) AS value")
    large = priced.where("revenue >= alert_from").select("key", record, "topic", "partition", "offset", "timestamp")
    # A broadcast join moves no row: each partition of the topic still reaches one task, in the order of its log.
    outcomes = app.handle(large, "sales", home=str(Path(__file__).parent), in_order=True)
    queries = (
        append(priced.select("id", "article", "category", "pieces", "revenue"), "sales", warehouse),
        append(outcomes, "alerts", warehouse),
    )
    for query in queries:
        query.awaitTermination()


if __name__ == "__main__":
    session = SparkSession.builder.master("local[2]").appName("sales").config(map=LOCAL).getOrCreate()
    try:
        run(session, sys.argv[1])
    finally:
        session.stop()
