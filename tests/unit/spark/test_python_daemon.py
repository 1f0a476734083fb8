"""Workers import the pyspark that is installed, unless there is none but the zip."""

from __future__ import annotations

import pytest

from multilane.spark.python_daemon import without_zips


@pytest.fixture
def site(tmp_path):
    package = tmp_path / "site" / "pyspark"
    (package / "python" / "lib").mkdir(parents=True)
    (package / "__init__.py").touch()
    return package


def test_the_zips_of_the_package_that_is_there_are_left_out(site):
    lib = site / "python" / "lib"
    others = ["/somewhere/else.zip", str(site.parent), "/application"]

    assert without_zips([str(lib / "pyspark.zip"), str(lib / "py4j-src.zip"), *others]) == others


def test_zips_of_another_spark_stay(site, tmp_path):
    paths = [str(tmp_path / "spark" / "python" / "lib" / "pyspark.zip"), str(site.parent)]

    assert without_zips(paths) == paths


def test_where_only_the_zip_has_pyspark_it_stays(site):
    paths = [str(site / "python" / "lib" / "pyspark.zip"), "/application"]

    assert without_zips(paths) == paths
