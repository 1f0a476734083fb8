"""Runs Spark as our commands do, so that its JVM writes an archive of its loaded classes at exit.

Thread: application.

`python -m multilane.spark.class_training FILE`; `class_archive` starts it.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from multilane.spark.class_archive import java_option
from multilane.spark.first_slot import START_SECONDS, await_slot
from multilane.spark.session import QUICK_START, of_one_job, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_MASTER: Final = "local[2]"
_OPTIONS: Final = "spark.driver.extraJavaOptions"
_ROWS: Final = 1_000
_TIMEOUT: Final = 120.0


def _count(spark: SparkSession, folder: Path) -> None:
    """Files, shuffles, joins and windows, as an audit and a plan use them."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    rows = spark.range(_ROWS).selectExpr(
        "id", "id % 7 as place", "cast(id as timestamp) as at", "cast(id as string) as s"
    )
    rows.write.parquet(str(folder / "rows"))
    kept = spark.read.schema(rows.schema).parquet(str(folder / "rows"))
    first = kept.groupBy("id").agg(
        F.max_by("s", F.struct("at", "id")).alias("last"), F.collect_set("place").alias("all")
    )
    joined = rows.join(F.broadcast(first), ["id"], "left").persist()
    before = Window.partitionBy("place").orderBy("id").rowsBetween(Window.unboundedPreceding, -1)
    joined.withColumn("latest", F.max(F.struct("at", "id")).over(before)).groupBy("place").count().collect()
    joined.join(first, ["id"], "full_outer").groupBy("place").agg(F.count(F.when(F.col("id") > 1, 1))).collect()
    joined.unpersist()


def _stream(spark: SparkSession, folder: Path) -> None:
    """A streaming query, as the batches engine runs one."""
    rows = spark.readStream.format("rate").option("rowsPerSecond", _ROWS).load()
    query = rows.writeStream.format("noop").option("checkpointLocation", str(folder / "checkpoint"))
    running = query.trigger(availableNow=True).start()
    running.awaitTermination(int(_TIMEOUT))


def train(archive: str) -> int:
    """Returns the exit code of the JVM."""
    from pyspark import SparkContext

    # Empty default options: the setting that maps an existing archive.
    options = {
        _OPTIONS: f"{QUICK_START[_OPTIONS]} {java_option('-XX:ArchiveClassesAtExit', Path(archive))}",
        "spark.driver.defaultJavaOptions": "",
    }
    with tempfile.TemporaryDirectory(prefix="multilane-") as folder:
        spark = start_session(_MASTER, "multilane", of_one_job(_MASTER, options))
        jvm: Any = SparkContext._gateway.proc  # type: ignore[union-attr]  # noqa: SLF001 - it has no other name
        await_slot(spark, START_SECONDS)  # a Python worker
        _count(spark, Path(folder))
        _stream(spark, Path(folder))
        spark.stop()
    jvm.communicate()  # closes its input: the JVM exits when its parent's pipe closes
    return int(jvm.returncode)


if __name__ == "__main__":
    sys.exit(train(sys.argv[1]))
