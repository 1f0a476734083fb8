"""`multilane run --engine process --members n`: several processes of an app, and what happens to them."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from multilane.app.control import ask
from multilane.client.admin.admin import Admin
from multilane.dev.ports import ReservedPorts
from multilane.errors import BrokerError

pytestmark = [pytest.mark.broker]
MEMBERS = 2
RECORDS = 200
PROGRAM = """
import os
import multilane
app = multilane.App("multilane.yaml")
@app.listener("orders")
async def handle(record: multilane.Record) -> None:
    os.write(1, f"{os.getpid()} {record.partition} {record.value.decode()}\\n".encode())  # a line is one write
"""


class Run:
    def __init__(self, shop, child: subprocess.Popen[str]) -> None:
        self.shop = shop
        self.child = child
        self.lines: list[tuple[int, int, int]] = []  # process, partition, record

    def members(self) -> list[int]:
        """Partitions of each."""
        group = f"{self.shop.main}.group"
        with Admin({"bootstrap.servers": self.shop.bootstrap}) as admin:
            try:
                found = admin.describe_groups([group])[group].members
            except BrokerError:  # nobody has joined yet
                return []
        self.instance_ids = {member.instance_id for member in found}
        return sorted(len(member.assignment or ()) for member in found)

    def read(self, records: int) -> None:
        for _ in range(records):
            process, partition, record = map(int, self.child.stdout.readline().split())
            self.lines.append((process, partition, record))

    @property
    def processes(self) -> set[int]:
        return {process for process, _, _ in self.lines}


@pytest.fixture
def run(shop, eventually):
    @contextmanager
    def begin(*options: str, **settings: object) -> Iterator[Run]:
        shop.fill([], partitions=4)
        shop.app(**settings)
        (shop.folder / "shop_program.py").write_text(PROGRAM)
        arguments = ["run", "shop_program:app", "--engine", "process", "--members", str(MEMBERS), *options]
        command = [sys.executable, "-m", "multilane", *arguments]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, cwd=shop.folder, stdout=pipe, stderr=pipe, text=True) as child:
            run = Run(shop, child)
            try:
                eventually(lambda: child.poll() is not None or run.members() == [2, 2], 60)
                assert child.poll() is None, child.stderr.read()
                shop.fill([f"k{n}" for n in range(RECORDS)], topic=shop.main)
                run.read(RECORDS)
                yield run
            finally:
                child.terminate()

    return begin


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_static_members_are_distinguished_by_their_numbers(run, protocol):
    properties = {"group.instance.id": "shop-${MULTILANE_MEMBER}", "group.protocol": protocol}
    with run(properties=properties) as siblings:
        siblings.members()
    assert siblings.instance_ids == {"shop-0", "shop-1"}
    assert len(siblings.processes) == MEMBERS


def test_they_share_the_partitions_and_end_in_order(run, shop):
    with run() as siblings:
        siblings.child.terminate()
        _, said = siblings.child.communicate(timeout=60)
    assert siblings.child.returncode == 0, said
    assert sorted(record for _, _, record in siblings.lines) == list(range(RECORDS))
    owners = {partition: {p for p, at, _ in siblings.lines if at == partition} for partition in range(4)}
    assert len(siblings.processes) == MEMBERS
    assert siblings.child.pid not in siblings.processes
    assert all(len(owner) == 1 for owner in owners.values())
    assert sum(shop.committed().values()) == RECORDS
    assert siblings.members() == []
    assert "[member 1 of 2]" in said


def test_one_that_is_killed_is_started_again_and_the_others_go_on(run, shop, eventually):
    with run(properties={"group.instance.id": "shop-${MULTILANE_MEMBER}"}) as siblings:
        eventually(lambda: sum(shop.committed().values()) == RECORDS, 30)
        killed, other = sorted(siblings.processes)
        os.kill(killed, signal.SIGKILL)
        siblings.lines.clear()

        def both_handle_records() -> bool:
            shop.fill([f"k{n}" for n in range(20)], topic=shop.main)
            siblings.read(20)
            return len(siblings.processes) == MEMBERS

        eventually(both_handle_records, 60)
        siblings.child.terminate()
        _, said = siblings.child.communicate(timeout=60)
    assert siblings.child.returncode == 0, said
    assert other in siblings.processes
    assert killed not in siblings.processes
    assert "was killed by signal 9. Restarting it in 1 s" in said
    assert "Traceback" not in said


SETTLED = 'multilane_lanes_records_settled_total{consumer="orders"}'


def test_metrics_probes_and_control_are_those_of_all_members(run, shop, eventually):
    with ReservedPorts(1) as ports, run("--metrics", f":{ports.ports[0]}", "--control", "control") as siblings:
        address, control = f"127.0.0.1:{ports.ports[0]}", shop.folder / "control"
        eventually(lambda: f"{SETTLED} {RECORDS}.0" in _get(address, "metrics"), 30)
        # The gauges of a report are of the second before it.
        eventually(lambda: _get(address, "readyz") == "ok\n", 30)
        assert _get(address, "livez") == "ok\n"
        ask(control, {"do": "pause", "consumer": "orders"})
        killed = min(siblings.processes)
        os.kill(killed, signal.SIGKILL)
        shop.fill([f"k{n}" for n in range(20)], topic=shop.main)
        eventually(lambda: siblings.members() != [2, 2], 60)  # the group still counts the killed one for a while
        eventually(lambda: siblings.members() == [2, 2], 60)
        assert not select.select([siblings.child.stdout], [], [], 1.0)[0], "it is paused, also where it was restarted"
        siblings.lines.clear()
        ask(control, {"do": "resume", "consumer": "orders"})
        siblings.read(20)
        assert ask(control, {"do": "progress"})["progress"]["orders"]["paused"] is False
        siblings.child.terminate()
        _, log = siblings.child.communicate(timeout=60)
    assert siblings.child.returncode == 0, log
    assert len(siblings.processes) == MEMBERS
    assert killed not in siblings.processes
    total = re.search(r"run total \(\d+ s\): settled (\d+), failed 0", log)
    assert total is not None, log
    assert int(total[1]) >= RECORDS + 20, "of all members; what the killed one had not committed was handled twice"


def _get(address: str, page: str) -> str:
    try:
        with urllib.request.urlopen(f"http://{address}/{page}", timeout=10) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def test_they_end_in_order_when_their_parent_is_gone(run, shop, eventually):
    with run() as siblings:
        siblings.child.kill()
        eventually(lambda: not any(map(_is_there, siblings.processes)), 60)
    assert sum(shop.committed().values()) == RECORDS
    assert siblings.members() == []


def _is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True
