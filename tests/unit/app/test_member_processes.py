"""Several processes of an app: what is refused before any of them begins."""

from __future__ import annotations

import json
import multiprocessing
import sys

import pytest

from multilane import Record
from multilane.app import member_process
from multilane.app.app import App
from multilane.app.member_checks import check_members_differ
from multilane.app.member_processes import MemberProcesses, run_member_processes
from multilane.app.targets import find_app
from multilane.clock import SystemClock
from multilane.config.app.loading import load_app
from multilane.engines import spark_run
from multilane.engines.spark_run import BATCHES, CONTINUOUS, SparkSettings, run_on_spark
from multilane.errors import ConfigError, ConfigProblems, TargetNotFound
from multilane.runtime import restarts

MODULE = """
import multilane
app = multilane.App({path!r})
@app.listener("orders")
async def handle(record: multilane.Record) -> None: ...
"""


class Reached(Exception):
    """Spark would be started now."""

    @classmethod
    def here(cls, *told):
        raise cls


@pytest.fixture
def static_app(tmp_path, monkeypatch):
    group = {"cluster": "main", "groupId": "g", "name": "orders", "properties": {"group.instance.id": "shop-1"}}
    settings = {"clusters": {"main": {"clientId": "c", "brokers": "127.0.0.1:1"}}, "consumers": {"orders": group}}
    path = tmp_path / "multilane.yaml"
    path.write_text(json.dumps(settings))
    (tmp_path / "static_shop.py").write_text(MODULE.format(path=str(path)))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "static_shop", raising=False)
    return "static_shop:app"


def test_members_that_would_be_one_and_the_same_are_refused(static_app):
    told = r"consumers.orders has the same group.instance.id .*put \$\{MULTILANE_MEMBER\} into it.*run one member"
    with pytest.raises(ConfigError, match=told):
        run_member_processes(static_app, 2, "INFO")


def test_so_are_they_on_spark_but_not_where_the_query_is_the_one_member(static_app, monkeypatch):
    monkeypatch.setattr(spark_run, "start_session", Reached.here)
    with pytest.raises(ConfigError, match=r"the same group\.instance\.id for all members"):
        run_on_spark(static_app, SparkSettings(CONTINUOUS, "local[2]"))
    for settings in (SparkSettings(CONTINUOUS, "local[1]"), SparkSettings(BATCHES, "local[2]")):
        with pytest.raises(Reached):
            run_on_spark(static_app, settings)


def test_members_with_a_number_of_their_own_are_distinguished(static_app, tmp_path):
    file = tmp_path / "multilane.yaml"
    file.write_text(file.read_text().replace("shop-1", "shop-${MULTILANE_MEMBER}"))
    app = find_app(static_app)
    check_members_differ(app)
    ids = [app.config_of(number).consumers["orders"].properties["group.instance.id"] for number in (0, 3)]
    assert ids == ["shop-0", "shop-3"]


def test_an_app_that_is_not_there_is_reported_once():
    with pytest.raises(TargetNotFound):
        run_member_processes("no_such_shop:app", 2, "INFO")


def test_what_a_ready_configuration_would_be_for_others_is_not_known(static_app, tmp_path):
    app = App(load_app(tmp_path / "multilane.yaml"))

    @app.listener("orders")
    async def handle(record: Record) -> None: ...

    check_members_differ(app)


def test_foreign_text_in_the_error_of_a_member_forges_no_log_line(caplog):
    """Each line of the error was a log record of its own."""
    member_process._log_end(ConfigError("refused: x\n2026-01-01 INFO multilane: forged\r\x1b[2J"))
    member_process._log_end(ConfigProblems(["multilane.yaml:3: a: wrong", "multilane.yaml:4: b: wrong"]))
    assert [record.getMessage().split("\n") for record in caplog.records] == [
        ["refused: x", "  2026-01-01 INFO multilane: forged\\r\\x1b[2J"],
        ["the configuration has 2 problems:", "  multilane.yaml:3: a: wrong", "  multilane.yaml:4: b: wrong"],
    ]


# --- members that end, and members that something ends ---------------------------------------------------------------

LIVES = """
import os, sys
from pathlib import Path
with Path({path!r}).open("a") as lives:
    lives.write("one ")
    is_first = lives.tell() == len("one ")
if is_first:
    {first}
sys.exit(0)
"""


@pytest.fixture
def lives(tmp_path, monkeypatch):
    """Runs a member until it has ended for good. Gives how often it began, and its exit code at last."""
    monkeypatch.setattr(restarts, "_FIRST_WAIT", 0.01)
    monkeypatch.chdir(tmp_path)

    def run(first: str) -> tuple[int, int | None]:
        (tmp_path / "mortal_shop.py").write_text(LIVES.format(path=str(tmp_path / "lives"), first=first))
        stop_receiver, stop_sender = multiprocessing.get_context("spawn").Pipe(duplex=False)
        with stop_receiver, stop_sender:
            ended = MemberProcesses("mortal_shop:app", 1, "INFO", SystemClock()).supervise(stop_receiver)
        assert ended is not None
        return (tmp_path / "lives").read_text().count("one"), ended.exitcode

    return run


@pytest.mark.parametrize("code", [0, 1])
def test_a_member_that_something_ends_is_started_again_whatever_its_exit_code(lives, code):
    """With 0 or 1 it was taken for one that had ended by itself, and all of the application ended, after 0 as if all
    was well: C libraries and os._exit do that."""
    assert lives(f"os._exit({code})") == (2, 0)


@pytest.mark.parametrize(("code", "first"), [(1, "raise ValueError"), (0, "sys.exit(0)")])
def test_a_member_that_ends_by_itself_ends_the_others(lives, code, first):
    assert lives(first) == (1, code)
