"""`multilane audit`: its output and its exit codes."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from multilane.audit import run
from multilane.audit.completeness import AuditFiles
from multilane.audit.order import OrderRule
from multilane.audit.run import GroupAudit
from multilane.audit.spans import Span
from multilane.audit.verdict import AuditCounts, AuditVerdict, Doubtful, Inverted, Repeated, Unaccounted
from multilane.cli import audit_view
from multilane.cli.main import app
from multilane.types import TopicPartition

ONE, TWO = TopicPartition("orders", 0), TopicPartition("orders", 1)
CONFIG = {
    "clusters": {"main": {"clientId": "c", "brokers": "127.0.0.1:1"}},
    "consumers": {"orders": {"groupId": "g", "name": "orders", "cluster": "main"}},
}


BY_KEY = OrderRule("key")


def found(verdict: AuditVerdict, order: OrderRule = BY_KEY, **spans: Span) -> GroupAudit:
    judged = {ONE: Span(0, 10), TWO: Span(0, 10)} | {TopicPartition(name, 0): span for name, span in spans.items()}
    return GroupAudit("g", ("orders", "orders.retry"), judged, order, verdict)


def shown(made: GroupAudit) -> str:
    console = Console(file=io.StringIO(), width=160)
    audit_view.show(made, console=console)
    return console.file.getvalue()


WHOLE = AuditVerdict({ONE: AuditCounts(read=10, done=6, skipped=1, retried=2, dead=1)})
HOLED = AuditVerdict(
    {ONE: AuditCounts(read=10, done=8), TWO: AuditCounts(read=5, done=5)}, unaccounted=(Unaccounted(ONE, 4, 4),)
)


@pytest.mark.parametrize(
    ("verdict", "exactly_once", "expected"),
    [
        (WHOLE, True, "Proved: 10 read = 6 done + 1 skipped + 2 retried + 1 dead, in order per key, each once."),
        (
            HOLED,
            False,
            "NOT PROVED: 15 read, but 13 done + 0 skipped + 0 retried + 0 dead: 2 records have no audit record.",
        ),
        (AuditVerdict({ONE: AuditCounts(read=2, done=2, inverted=1)}), False, "NOT PROVED: 2 read = 2 done"),
        (AuditVerdict({ONE: AuditCounts(read=2, done=2, repeated=1)}), False, "1 were handled more than once."),
        (AuditVerdict({ONE: AuditCounts(read=2, done=2, repeated=1)}), True, "but 1 have more than one audit record."),
        (AuditVerdict({}), False, "nothing could be judged"),
    ],
)
def test_the_verdict_is_a_sentence(verdict, exactly_once, expected):
    made = found(verdict)
    sentence = audit_view.sentence(made, exactly_once=exactly_once)
    assert expected in sentence
    assert audit_view.is_proved(made, exactly_once=exactly_once) == sentence.startswith("Proved")


@pytest.mark.parametrize(
    ("files", "exactly_once", "expected"),
    [
        (
            AuditFiles(faults=("a file is gone",)),
            False,
            "NOT PROVED: 10 read = 6 done + 1 skipped + 2 retried + 1 dead",
        ),
        (
            AuditFiles(old=("s",)),
            False,
            "Proved: 10 read = 6 done + 1 skipped + 2 retried + 1 dead, in order per key; not",
        ),
        (
            AuditFiles(old=("s",)),
            True,
            "but an earlier version wrote some audit records, without the records in flight",
        ),
    ],
)
def test_incomplete_audit_files_prove_only_what_they_contain(files, exactly_once, expected):
    made = replace(found(WHOLE), files=files)
    assert expected in audit_view.sentence(made, exactly_once=exactly_once)
    assert "each once" not in audit_view.sentence(made, exactly_once=exactly_once)


def test_records_possibly_handled_twice_are_never_each_once():
    verdict = AuditVerdict({ONE: AuditCounts(read=9, done=9, doubtful=4)}, doubtful=(Doubtful(ONE, 2, 5),))
    assert audit_view.sentence(found(verdict)).endswith("in order per key; 4 may have been handled more than once.")
    sentence = audit_view.sentence(found(verdict), exactly_once=True)
    assert sentence.startswith("NOT PROVED")
    assert sentence.endswith("but 4 may have been handled more than once.")
    assert "orders-0@2-5: 4 records may have been in flight at a kill" in shown(found(verdict))


def test_unknown_beginning_of_audit_records_is_no_proof():
    made = replace(found(WHOLE), spans={ONE: Span(0, 10, is_loose=True)})
    assert "so their beginning is unknown" in audit_view.sentence(made)
    assert not audit_view.is_proved(made, exactly_once=False)


def test_accounts_of_another_log_are_no_proof():
    reason = (
        "orders-0: audit records up to offset 200 are of another log: it ends at offset 200, but the log ends at 103"
    )
    made = replace(found(WHOLE), strayed=(reason,))
    assert not audit_view.is_proved(made, exactly_once=False)
    assert "but some audit records belong to a log that was truncated or deleted since" in shown(made)
    assert reason in shown(made)


def test_uncovered_offsets_are_reported():
    made = replace(found(WHOLE), spans={ONE: Span(40, 50, uncovered=40)})
    assert "orders-0: 40 offsets before 40 precede its first audit record: not judged" in shown(made)


def test_audit_records_beyond_the_commit_are_reported():
    spans = {ONE: Span(0, 50, beyond=1_200), TWO: Span(9, 9, why="it was reset", beyond=3)}
    text = shown(replace(found(WHOLE), spans=spans))
    assert "orders-0: audit records up to 1,200 offsets beyond the commit were not judged" in text
    assert "orders-1 was not judged: it was reset" in text
    many = {TopicPartition("orders", n): Span(0, 5, beyond=2) for n in range(30)}
    assert "30 partitions have audit records beyond their commits, up to 60 offsets: not judged" in shown(
        replace(found(WHOLE), spans=many)
    )


def test_retried_records_whose_copies_wait_are_reported():
    made = found(AuditVerdict({ONE: AuditCounts(read=10, done=8, retried=2, waiting=1)}))
    assert "the copies of 1 retried records were not judged" in shown(made)
    assert audit_view.facts(made)["total"]["waiting"] == 1
    assert "copies" not in shown(found(WHOLE))


def test_findings_and_unjudged_partitions_are_listed():
    verdict = AuditVerdict(
        {ONE: AuditCounts(read=9, done=5, repeated=1, inverted=1, gone=3)},
        (Unaccounted(ONE, 4, 4),),
        (Repeated(ONE, 1, 1, 2, "done"), Repeated(ONE, 20, 39, 2, "done")),
        inverted=(Inverted(ONE, 3, behind=2),),
    )
    text = shown(found(verdict, OrderRule(None, "orderBy is none"), other=Span(0, 0, why="it has no audit records")))
    assert "orders-0@4: 1 record without an audit record" in text
    assert "and 3 more without an audit record" in text
    assert "orders-0@3 was handled before 2 of the same key" in text
    assert "orders-0@1: 1 record with 2 audit records, the last is done" in text
    assert "orders-0@20-39: 20 records with 2 audit records, the last is done" in text
    assert "other-0 was not judged: it has no audit records" in text
    assert "order was not judged: orderBy is none" in text
    assert "3 audit records refer to records that are no longer in the log" in text


def test_a_partition_without_any_account_is_no_proof():
    made = found(WHOLE, other=Span(0, 0, why="it has no audit records", is_hole=True))
    assert not audit_view.is_proved(made, exactly_once=False)
    assert audit_view.sentence(made).endswith("but there are no audit records for other-0.")


def test_expired_offsets_are_reported():
    assert "orders-1: 7 offsets before 7 are gone from the log" in shown(
        GroupAudit("g", ("orders",), {TWO: Span(7, 9, expired=7)}, OrderRule("key"), WHOLE)
    )


def test_many_partitions_are_shown_by_topic():
    many = {TopicPartition("orders", n): AuditCounts(read=1, done=1) for n in range(30)}
    text = shown(found(AuditVerdict(many)))
    assert "orders-7" not in text
    assert "30" in text


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "multilane.yaml"
    path.write_text(json.dumps(CONFIG))
    return str(path)


@pytest.mark.parametrize(("verdict", "code"), [(WHOLE, 0), (HOLED, 1), (AuditVerdict({}), 1)])
def test_the_exit_code(config, monkeypatch, verdict, code):
    monkeypatch.setattr(run, "audit_group", lambda request, tell: found(verdict))
    ran = CliRunner().invoke(app, ["audit", "orders", "--config", config, "--output", "json"])
    assert ran.exit_code == code, ran.output
    result = json.loads(ran.output)
    assert result["proved"] == (code == 0)
    assert result["total"]["read"] == verdict.total.read
    assert [row["partition"] for row in result["partitions"]] == [0, 1]


def test_a_consumer_without_audit_gets_the_remedy(config):
    ran = CliRunner().invoke(app, ["audit", "orders", "--config", config])
    assert ran.exit_code == 1
    assert "consumer orders writes no audit records: set `audit` to a directory" in str(ran.exception)


def test_missing_audit_records_are_reported_before_spark_starts(tmp_path):
    settings = json.loads(json.dumps(CONFIG))
    settings["consumers"]["orders"]["audit"] = str(tmp_path / "files")
    path = tmp_path / "multilane.yaml"
    path.write_text(json.dumps(settings))
    ran = CliRunner().invoke(app, ["audit", "orders", "--config", str(path)])
    assert "no audit records of group g in" in str(ran.exception)


def test_an_unknown_consumer_gets_a_suggestion(config):
    ran = CliRunner().invoke(app, ["audit", "order", "--config", config])
    assert "orders" in str(ran.exception)
