"""A member that was stopped for longer than its session begins nothing that others have, when it goes on."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading

import pytest

from multilane.client.async_consumer import AsyncConsumer
from multilane.clock import SystemClock

pytestmark = [pytest.mark.broker]

PROGRAM = """
import asyncio, sys
import multilane
app = multilane.App("multilane.yaml")

@app.listener("orders")
async def handle(record: multilane.Record) -> None:
    print("begun", record.partition, record.offset, flush=True)
    await asyncio.sleep(0.02)
    print("done", record.partition, record.offset, flush=True)
app.run()
"""

RECORDS = 3_000
CLASSIC = {"group.protocol": "classic", "session.timeout.ms": 2000, "heartbeat.interval.ms": 300}
CONSUMER = {"group.protocol": "consumer"}  # the broker of the tests has a session of 3 s


class Member:
    def __init__(self, folder, name):
        self._log = open(folder / f"{name}.log", "w")  # noqa: SIM115 - as long as its process
        command = [sys.executable, "stopped_program.py"]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=self._log, text=True)
        self.said = []
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self):
        for line in self.process.stdout:
            self.said.append(tuple(line.split()))

    def begun(self):
        return [said[1:] for said in list(self.said) if said[0] == "begun"]

    def signal(self, number):
        os.kill(self.process.pid, number)

    def end(self):
        self.signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(30)
        finally:
            self.process.kill()
            self._reading.join()
            self.process.stdout.close()
            self._log.close()


@pytest.mark.parametrize("properties", [CLASSIC, CONSUMER], ids=["classic", "kip848"])
def test_a_member_that_was_stopped_beyond_its_session_begins_nothing(shop, eventually, properties):
    """It began up to a second's worth of records that others had begun."""
    shop.fill([f"k{i}" for i in range(RECORDS)], partitions=2)
    shop.app(virtualPartitionCount=4, properties=properties, error=shop.make_topic(1))
    (shop.folder / "stopped_program.py").write_text(PROGRAM)
    members = [Member(shop.folder, "first")]
    try:
        eventually(lambda: len(members[0].begun()) > 20, 30)
        members.append(Member(shop.folder, "second"))
        first, second = members
        eventually(lambda: len(second.begun()) > 20, 30)
        first.signal(signal.SIGSTOP)
        mine = {partition for partition, _ in second.begun()[-4:]}
        eventually(lambda: {p for p, _ in second.begun()[-40:]} > mine, 30)
        before, others = first.begun(), set(second.begun())
        first.signal(signal.SIGCONT)
        eventually(lambda: "starts no record" in (shop.folder / "first.log").read_text(), 30)
        eventually(lambda: len({*first.begun(), *second.begun()}) == RECORDS, 30)
        assert not others & set(first.begun()[len(before) :]), "it began what another had begun"
    finally:
        for member in members:
            member.end()


async def test_under_kip_848_the_session_is_the_brokers(shop):
    shop.fill(["a"], partitions=1)
    clock = SystemClock()
    settings = {
        "bootstrap.servers": shop.bootstrap,
        "group.id": f"{shop.main}.group",
        "group.protocol": "consumer",
        "auto.offset.reset": "earliest",
    }
    async with AsyncConsumer(settings, clock=clock) as consumer:
        consumer.subscribe([shop.main])
        async with asyncio.timeout(30):
            while not 1.6 < consumer.fenced_after - clock.monotonic() < 60.0:  # three intervals are 1.5 s
                await consumer.poll(0.1)
