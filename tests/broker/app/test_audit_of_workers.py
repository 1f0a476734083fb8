"""What the audit knows of a record whose worker process was killed, beside a ledger of its own."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest

from multilane.audit.folder import AuditFolder
from multilane.audit.reading import read_files
from multilane.client.produce.producer import Producer

pytestmark = [pytest.mark.broker, pytest.mark.slow]
RECORDS = 20
PROGRAM = """
import os, signal
import multilane
app = multilane.App("multilane.yaml")
@app.listener("orders")
def handle(record: multilane.Record) -> None:
    ledger = os.open("ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(ledger, b"%d\\n" % record.offset)
    os.close(ledger)
    if record.offset == 5 and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_record_whose_worker_was_killed_is_not_proved_to_be_handled_once(shop, eventually):
    """It had its effect twice and one audit record, and the command said "each once"."""
    shop.main = shop.make_topic(1)
    with Producer({"bootstrap.servers": shop.bootstrap}) as producer:
        producer.send_many([(shop.main, b"v", b"k%d" % n, (), 0) for n in range(RECORDS)]).result(30)
    accounts = shop.folder / "accounts"
    shop.app(audit=str(accounts), processes=1)
    (shop.folder / "audited.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "multilane", "run", "audited:app", "--engine", "process"]
    with subprocess.Popen(command, cwd=shop.folder, stderr=subprocess.PIPE) as child:
        eventually(lambda: sum(shop.committed().values()) == RECORDS, 60)
        child.terminate()
        child.communicate(timeout=60)
    times = Counter(map(int, (shop.folder / "ledger").read_text().split()))
    assert {offset for offset, many in times.items() if many > 1} == {5}
    assert read_files(AuditFolder(str(accounts), f"{shop.main}.group"), f"{shop.main}.group").are_complete

    once = audit(shop, "--exactly-once")
    assert once.returncode == 1, once.stdout + once.stderr
    assert f"NOT PROVED: {RECORDS} read = {RECORDS} done" in once.stdout
    assert "1 may have been handled more than once" in once.stdout
    assert f"{shop.main}-0@5: 1 record may have been in flight" in once.stdout


def audit(shop, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "multilane", "audit", "orders", *options]
    return subprocess.run(command, cwd=shop.folder, capture_output=True, text=True, timeout=150, check=False)
