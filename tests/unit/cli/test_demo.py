"""The demo's orders, its application and its verdicts, without a broker."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from multilane.app.targets import find_app
from multilane.audit.order import OrderRule
from multilane.audit.run import GroupAudit
from multilane.audit.verdict import AuditCounts, AuditVerdict
from multilane.cli.demo import Demo, DemoFinding, findings
from multilane.cli.demo_shop import APP, TOPIC, Odd, configuration, odd_ones, orders
from multilane.cli.main import app as program
from multilane.config.app.loading import load_app
from multilane.errors import SparkStartError
from multilane.types import TopicPartition


def test_orders_are_the_same_in_every_run():
    assert list(orders(2_000)) == list(orders(2_000))
    assert len(list(orders(2_000))) == 2_000


def test_some_orders_are_not_like_the_others():
    assert odd_ones(10_000) == Odd(slow=4, fail_once=9, fail_always=2, unreadable=1)
    assert sum(not value.startswith(b"{") for _, value in orders(10_000)) == 1


def test_its_configuration_is_one_that_an_app_takes(tmp_path):
    path = tmp_path / "multilane.yaml"
    path.write_text(configuration("127.0.0.1:9092", str(tmp_path / "audit")))
    consumer = load_app(path, None).consumer(TOPIC)
    assert (consumer.retry_order, consumer.audit) == ("key", str(tmp_path / "audit"))


def test_the_application_that_is_shown_is_one(tmp_path, monkeypatch):
    (tmp_path / "multilane.yaml").write_text(configuration("127.0.0.1:9092", str(tmp_path / "audit")))
    (tmp_path / "shop_as_shown.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    find_app("shop_as_shown:app").check_runnable()


@pytest.mark.parametrize(("read", "errors", "wrong"), [(100, 3, 0), (99, 3, 1), (100, 4, 1)])
def test_differences_are_noticed(read, errors, wrong):
    demo = Demo(Console(file=io.StringIO()), Path(), 100, 1)
    tallies = {
        TopicPartition(TOPIC, 0): AuditCounts(read=read, done=read - 3, dead=3),
        TopicPartition("r", 0): AuditCounts(),
    }
    made = GroupAudit("g", (TOPIC, "r"), {}, OrderRule("key"), AuditVerdict(tallies))
    checked = findings(demo, Odd(0, 0, 2, 1), 100, made, errors)
    assert sum(not finding.holds for finding in checked) == wrong


def test_a_finding_holds_when_both_are_equal():
    assert DemoFinding("records", 3, 3).holds
    assert not DemoFinding("records", 3, 2).holds


def test_without_pyspark_nothing_starts(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("multilane.dev.kafka.KafkaCluster.start_all", lambda self: pytest.fail("it starts a Kafka"))
    result = CliRunner().invoke(program, ["demo"])
    assert isinstance(result.exception, SparkStartError)
    assert 'pyspark is not installed: pip install "multilane[spark]"' in str(result.exception)
