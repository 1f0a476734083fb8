"""`multilane demo` as a person runs it, and what it says when records do not match."""

from __future__ import annotations

import io
import subprocess
import sys
import uuid
from pathlib import Path

import pytest
from rich.console import Console

from multilane.cli import demo
from multilane.cli import orders as orders_module

pytestmark = pytest.mark.broker


@pytest.mark.slow
def test_the_demo_runs_without_a_terminal():
    done = subprocess.run(
        [Path(sys.executable).with_name("multilane"), "demo", "--records", "20000", "--partitions", "3"],
        capture_output=True,
        text=True,
        timeout=170,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Everything that was written was read, once and unchanged." in done.stdout
    assert "records as objects: 20,000" in done.stdout
    assert "orders handled on lanes: 20,000" in done.stdout
    assert "tried again: " in done.stdout
    assert "customer-" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.stderr == ""


@pytest.fixture
def shown(kafka, monkeypatch):
    monkeypatch.setattr(demo, "TOPIC", f"demo-{uuid.uuid4().hex[:8]}")
    console = Console(file=io.StringIO(), width=100)
    return demo.Demo(console, 3_000, 2, bootstrap=kafka.bootstrap())


def test_all_is_right(shown):
    assert demo.run(shown)
    assert "WRONG" not in shown.console.file.getvalue()


def test_a_record_that_is_not_what_was_meant_is_noticed(shown, monkeypatch):
    honest = orders_module.orders

    def changed(count, tally):
        for number, (key, value) in enumerate(honest(count, tally)):
            yield key, value.replace(b"qty", b"QTY") if number == 1_234 else value

    monkeypatch.setattr(orders_module, "orders", changed)
    assert not demo.run(shown)
    told = shown.console.file.getvalue()
    assert told.count("WRONG") == 3
    assert "WRONG  checksum of the columns" in told
    assert "WRONG  checksum of the objects" in told
    assert "WRONG  checksum of what was handled" in told
