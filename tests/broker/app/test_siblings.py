"""`multilane run --engine process --members n`: several processes of an app, and what happens to them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from multilane.client.admin.admin import Admin
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
    def begin(**settings: object) -> Iterator[Run]:
        shop.fill([], partitions=4)
        shop.app(**settings)
        (shop.folder / "shop_program.py").write_text(PROGRAM)
        arguments = ["run", "shop_program:app", "--engine", "process", "--members", str(MEMBERS)]
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
def test_static_members_are_told_apart_by_their_numbers(run, protocol):
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
