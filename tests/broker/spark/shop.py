"""A small application in a directory of its own, and a topic with records for it, for runs of `multilane run`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

from multilane import Admin
from multilane.clock import SystemClock
from multilane.errors import MultilaneError

PATIENCE = 120.0
CLOCK = SystemClock()
MODULE = """
import os
from multilane import App, Record
app = App("multilane.yaml")
@app.listener("orders")
async def index(record: Record) -> None:
    if record.value == b"poison":
        raise ValueError("never")
    with open(os.environ["SHOP_DONE"], "a") as done:
        done.write(f"{record.value.decode()} {os.environ['MULTILANE_MEMBER']}\\n")
"""
WATCHING = """
import json

class Watching:
    def count(self, name, value=1, **labels):
        if name.startswith("spark."):
            from pyspark import SparkContext
            url = SparkContext._active_spark_context.uiWebUrl
            with open(os.environ["SHOP_DONE"] + "-queries", "a") as told:
                told.write(json.dumps({"name": name, "value": value, "url": url} | labels) + "\\n")
"""
MEMBERS = """
import os
from multilane import App, Context, Partitions, Record
app = App("multilane.yaml")
def note(what: str, member: str | None) -> None:
    with open(os.environ["SHOP_DONE"], "a") as done:
        done.write(f"{what} {member}\\n")
@app.on_assigned
def begin(assigned: Partitions) -> None:
    note("assigned", assigned.member_id)
@app.on_revoked
def finish(revoked: Partitions) -> None:
    note("revoked", revoked.member_id)
@app.listener("orders")
async def index(record: Record, context: Context) -> None:
    note("handled", context.get("Z-MemberID"))
"""
OBSERVED = WATCHING + MODULE.replace('App("multilane.yaml")', 'App("multilane.yaml", observer=Watching())')


def assert_poison_is_seen(log: str, *, failed: str = "failed 2, retried 1, dead 1") -> None:
    """The driver logs the failure once, with its traceback, for all of its workers; nothing else is an error."""
    errors = [line for line in log.splitlines() if " ERROR " in line]
    assert len(errors) == 1, errors
    assert "ValueError at shop/shop_app.py:" in errors[0]
    assert log.count("Traceback (most recent call last)") == 1
    [closing] = [line for line in log.splitlines() if "run total" in line]
    assert failed in closing


def assert_one_member_is_named(shop: Shop) -> None:
    """By the partition functions around everything, and by each record."""
    kinds = [what for what, _ in shop.done]
    assert kinds.count("handled") == shop.filled + 1, "with what is poison for other apps"
    assert (kinds[0], kinds[-1]) == ("assigned", "revoked")
    assert len({member for _, member in shop.done} - {"None"}) == 1
    assert ("handled", "None") not in shop.done


class Shop:
    """An app's directory, and a topic with records for it."""

    def __init__(self, directory: Path, bootstrap: str, fill) -> None:
        self.directory, self.bootstrap, self.name = directory, bootstrap, f"shop-{uuid.uuid4().hex[:8]}"
        self._fill, self.filled = fill, 200
        self.done_file = directory.parent / "done"
        self.done_file.touch()
        directory.mkdir()
        (directory / "shop_app.py").write_text(MODULE)
        consumer = {"groupId": self.name, "name": self.name, "cluster": "main", "virtualPartitionCount": 5}
        consumer |= {"retry": f"{self.name}-retry", "error": f"{self.name}-error", "retryCount": 1}
        told = {
            "clusters": {"main": {"clientId": "shop", "brokers": bootstrap}},
            "consumers": {"orders": consumer | {"offsetInitial": "oldest"}},
        }
        (directory / "multilane.yaml").write_text(json.dumps(told))
        with Admin({"bootstrap.servers": bootstrap}) as admin:
            admin.create_topics({self.name: 4, f"{self.name}-retry": 4, f"{self.name}-error": 1})
        fill(self.name, [(b"%d" % i, b"k%d" % i, (), i % 4) for i in range(200)] + [(b"poison", b"p", (), 0)])

    def configure(self, **settings: object) -> None:
        """More of the consumer's settings."""
        file = self.directory / "multilane.yaml"
        told = json.loads(file.read_text())
        told["consumers"]["orders"] |= settings
        file.write_text(json.dumps(told))

    def is_shared(self, members: int) -> bool:
        """Every member has handled something; until then there is always something to do."""
        if len(self.done) == self.filled:
            more = range(self.filled, self.filled + 40)
            self._fill(self.name, [(b"%d" % i, b"k%d" % i, (), i % 4) for i in more])
            self.filled += 40
        return len({member for _, member in self.done}) == members

    @contextmanager
    def running(self, *options: str, cwd: Path | None = None, **environ: str):
        command = [sys.executable, "-m", "multilane", "run", "shop_app:app", *options]
        log = self.directory.parent / f"log-{uuid.uuid4().hex[:6]}"
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("PYSPARK_", "SPARK_"))}
        told = inherited | {"SHOP_DONE": str(self.done_file)} | environ
        with log.open("wb") as out:
            where = cwd or self.directory
            process = subprocess.Popen(command, cwd=where, env=told, stdout=out, stderr=out, process_group=0)
        try:
            yield process, log
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def run_to_its_end(self, *options: str, **environ: str) -> tuple[int, str]:
        with self.running(*options, **environ) as (process, log):
            return process.wait(PATIENCE), log.read_text()

    @property
    def told(self) -> list[dict]:
        """What the observer of OBSERVED heard."""
        file = self.done_file.with_name("done-queries")
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    def fill(self, values: Iterable[bytes]) -> None:
        self._fill(self.name, [(value, value, (), n % 4) for n, value in enumerate(values)])

    def make_again(self, log: Path) -> None:
        """The topic is deleted, and another one of its name is made."""
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            admin.delete_topics([self.name])

            def is_made() -> bool:
                with suppress(MultilaneError):  # it is still being deleted
                    admin.create_topics({self.name: 4})
                    return True
                return False

            self.wait_for(is_made, log)

    @property
    def done(self) -> list[tuple[str, str]]:
        return [tuple(line.split()) for line in self.done_file.read_text().splitlines()]

    def wait_for(self, condition, log: Path) -> None:
        deadline = CLOCK.monotonic() + PATIENCE
        while not condition():
            if CLOCK.monotonic() >= deadline:
                text = log.read_text()[-4_000:]
                raise AssertionError(f"committed {self.committed()}, {len(self.done)} handled\n{text}")
            threading.Event().wait(0.1)

    def committed(self) -> dict[str, int]:
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            try:
                return {str(p): int(place.offset) for p, place in admin.group_offsets(self.name).items()}
            except MultilaneError:
                return {}

    def is_all_settled(self) -> bool:
        committed = self.committed()
        return [committed.get(f"{self.name}-{n}", 0) for n in range(4)] == [51, 50, 50, 50] and sum(
            offset for place, offset in committed.items() if "-retry-" in place
        ) == 1
