"""What makes Spark start sooner is really used by its JVM and its workers."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from multilane.java import find_java
from multilane.spark.class_archive import archive_file, mapped

pytestmark = pytest.mark.broker


def test_the_jvm_maps_the_archive_of_its_classes_where_there_is_one(spark):
    """`make test` has made it, unless this Java cannot."""
    from pyspark import SparkContext

    maps = Path(f"/proc/{SparkContext._gateway.proc.pid}/maps").read_text()

    assert (str(archive_file(find_java())) in maps) == bool(mapped(find_java(), os.environ))


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_workers_import_the_pyspark_that_is_installed(spark):
    def tell(batches):
        import pyspark

        yield from (pa.RecordBatch.from_pydict({"file": [pyspark.__file__]}) for _ in batches)

    import pyspark

    rows = spark.range(1, numPartitions=1).mapInArrow(tell, "file string").collect()

    assert [row.file for row in rows] == [pyspark.__file__]
