"""What makes Spark start sooner is really used by its JVM and its workers."""

from __future__ import annotations

import os
import site
import subprocess
import venv
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


COUNTING = """
import sys
from multilane.java import find_java
from multilane.spark.class_archive import archive_file
from multilane.spark.session import one_job

archive = archive_file(find_java())
archive.parent.mkdir(parents=True)
archive.symlink_to(sys.argv[3])
with one_job("local[1]", "counting", {}) as spark:
    from pyspark import SparkContext

    maps = open(f"/proc/{SparkContext._gateway.proc.pid}/maps").read()
    rows = spark.read.format("multilane").option("kafka.bootstrap.servers", sys.argv[1])
    print(rows.option("subscribe", sys.argv[2]).load().count(), sys.argv[3] in maps)
"""


@pytest.mark.long
def test_an_environment_with_a_space_in_its_path(kafka, topic, fill, tmp_path):
    """Spark does not look for sources then, and its options for Java are split at spaces."""
    name = topic()
    fill(name, [(b"x", None, (), 0)] * 5)
    home = tmp_path / "my environment"
    venv.create(home)
    [packages] = home.glob("lib/python*/site-packages")
    (packages / "all.pth").write_text(
        "".join(f"import site; site.addsitedir({one!r})\n" for one in site.getsitepackages())
    )
    archive = archive_file(find_java()) if mapped(find_java(), os.environ) else Path("/none")
    program = [str(home / "bin" / "python"), "-c", COUNTING, kafka.bootstrap(), name, str(archive)]
    environ = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
    done = subprocess.run(program, capture_output=True, text=True, env=environ, timeout=200, check=False)
    assert done.stdout.split() == ["5", str(archive.exists())], done.stderr[-4_000:]
