"""A driver of Spark with one member: `spark_member_main.py NAME PLAN JOURNAL FLOW`. Runs until SIGTERM."""

from __future__ import annotations

import json
import logging
import os
import sys
from pathlib import Path

from multilane.engines.spark_run import SparkSettings, run_on_spark

TESTS = Path(__file__).parents[1]
_CONF = {"spark.ui.enabled": "false", "spark.driver.memory": "512m"}


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    sys.path.insert(0, os.fspath(TESTS))
    *told, flow = sys.argv[1:]
    os.environ["CONFORMANCE_MEMBER"] = json.dumps(told)  # workers have it from here
    settings = SparkSettings(flow=flow, master="local[1]", members=1, conf=_CONF, home=os.fspath(TESTS))
    run_on_spark("conformance.member_main:told_app", settings)


if __name__ == "__main__":
    main()
