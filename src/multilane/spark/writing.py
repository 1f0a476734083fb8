"""`multilane.spark.write`: writes a DataFrame to Kafka.

Thread: application (the driver's).

Without `mode("append")` Spark refuses to write to a Python data source, and its suggestion does not help.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from multilane.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def write(rows: DataFrame, properties: Mapping[str, object], *, topic: str | None = None) -> None:
    """Append the rows of a batch DataFrame to Kafka, and return when the brokers have acknowledged all of them.

    `properties` are producer properties; `topic` is for rows without a `topic` column.

    >>> multilane.spark.write(orders.selectExpr("id as key", "to_json(struct(*)) as value"),
    ...                       {"bootstrap.servers": "localhost:9092"}, topic="orders")
    """
    from multilane.config.spelling import fold  # imported here: every Spark worker imports this package
    from multilane.spark.options import as_option

    if rows.isStreaming:
        raise ConfigError('this DataFrame is a stream: write it with rows.writeStream.format("multilane")')
    # Spark forgets capitals, and with them where the words of a name in camel case begin.
    given = {name: value for name, value in properties.items() if value is not None}
    options = {f"kafka.{fold(name)}": as_option(name, value) for name, value in given.items()}
    if topic is not None:
        options["topic"] = topic
    rows.write.format("multilane").options(**options).mode("append").save()
