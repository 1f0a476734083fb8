"""Two members of a group: on Spark, in one of its flows, or two processes.

`python -m bench.lane.members '<order as JSON>' continuous | batches | processes`

Thread: application in the driver; in workers the handlers run where the app runs them.

The same app and handlers as in `bench.lane.ours`. Each worker writes its count into a file of its own, many times a
second; the driver adds them up and reports, as every child does.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.lane.order import Order
from bench.lane.ours import made_app
from bench.lane.tally import Counts, tell_regularly
from multilane.app.member_processes import run_member_processes

if TYPE_CHECKING:
    from multilane.app.app import App

PLACE: Final = "BENCH_PLACE"  # a directory with the order
TARGET: Final = "bench.lane.members:told_app"
MEMBERS: Final = 2
PROCESSES: Final = "processes"
LEVEL: Final = os.environ.get("BENCH_LEVEL", "WARNING")
_WRITE_SECONDS: Final = 0.05


def told_app() -> App:
    """The app of a member. The driver creates one too, which runs nothing."""
    told = json.loads(Path(os.environ[PLACE], "order.json").read_text())
    app, counts = made_app(Order(**told["order"]))
    threading.Thread(target=_write, args=(counts, told["counted"]), name="tally", daemon=True).start()
    return app


def give(order: Order, place: Path) -> AllMembers:
    """Apps created from now on follow this order."""
    counted = Path(tempfile.mkdtemp(dir=place))
    (place / "order.json").write_text(json.dumps({"order": asdict(order), "counted": str(counted)}))
    return AllMembers(counted)


def _write(counts: Counts, directory: str) -> None:
    own = Path(directory, str(os.getpid()))
    fresh = own.with_suffix(".fresh")
    while True:
        if counts.handled:
            fresh.write_text(str(counts.handled))
            fresh.replace(own)
        time.sleep(_WRITE_SECONDS)


class AllMembers:
    """The records that all members have handled together."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    @property
    def handled(self) -> int:
        return sum(int(path.read_text()) for path in self._directory.iterdir() if not path.suffix)


def run(order: Order, flow: str) -> None:
    with tempfile.TemporaryDirectory(prefix="multilane-bench-") as directory:
        os.environ[PLACE] = directory
        tell_regularly(give(order, Path(directory)), order.tick)
        run_flow(TARGET, flow)


def run_flow(target: str, flow: str) -> None:
    if flow == PROCESSES:
        run_member_processes(target, MEMBERS, LEVEL)
        return
    from multilane.engines.spark_run import SparkSettings, run_on_spark

    logging.basicConfig(level=LEVEL)
    conf = {"spark.ui.enabled": "false"}
    settings = SparkSettings(flow, f"local[{MEMBERS}]", MEMBERS, conf, home=os.getcwd(), log_level=LEVEL)
    run_on_spark(target, settings)


if __name__ == "__main__":
    run(Order(**json.loads(sys.argv[1])), sys.argv[2])
