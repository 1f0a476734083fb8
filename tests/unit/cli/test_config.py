"""`multilane config`: its output and its exit codes."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from multilane.cli import main
from unit.config.app import samples


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    (tmp_path / "clusters.yaml").write_text(samples.CLUSTERS)
    (tmp_path / "consumers.yaml").write_text(samples.CONSUMERS)
    (tmp_path / "whole.yaml").write_text(samples.WHOLE)
    (tmp_path / "bad.yaml").write_text(
        "clusters:\n  k: {clientId: c, broker: b, auth: {username: u, password: geheim, x: y}}\n"
    )
    return lambda *words: CliRunner().invoke(main.app, ["config", *words])


def test_check_of_good_files(run):
    result = run("check", "clusters.yaml", "consumers.yaml", "--profile", "stage")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[-1] == "ok: 2 clusters, 3 consumers, 0 producers, 0 error consumers"
    assert any(line.startswith("advice: clusters.main.errorConfig.cron") for line in lines)


def test_check_of_bad_files(run):
    result = run("check", "bad.yaml")
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [
        "bad.yaml:2:3: clusters.k.brokers: the key is missing; add it: host:port of one or more brokers, as a list "
        "or separated by commas; the default port is 9092",
        "bad.yaml:2:20: clusters.k.broker: unknown key; did you mean brokers?",
        "bad.yaml:2:69: clusters.k.auth.x: unknown key; the keys here are username, password, certificates",
    ]
    assert result.stderr == "3 problems found\n"


@pytest.mark.parametrize(
    "words", [("check",), ("check", "absent.yaml"), ("explain", "whole.yaml", "-o", "xml"), ("check", ".")]
)
def test_wrong_use(run, words):
    assert run(*words).exit_code == 2


def test_explain_as_a_table(run):
    result = run("explain", "clusters.yaml", "--profile", "stage")
    assert result.exit_code == 0
    rows = [line.split() for line in result.output.splitlines()]
    assert ["clusters.main.producerConfig.timeout", "5s", "clusters.yaml:17:16,", "profile", "stage"] in rows
    assert ["clusters.main.producerConfig.compression", "none", "default"] in rows
    assert ["clusters.guarded.auth.password", "***", "clusters.yaml:29:17,", "profile", "stage"] in rows
    assert "correct horse" not in result.output


def test_explain_as_json(run, monkeypatch):
    monkeypatch.setenv("HOST", "h")
    result = run("explain", "whole.yaml", "-o", "json")
    rows = {row["path"]: row for row in json.loads(result.output)}
    assert rows["clusters.main.brokers"] == {
        "path": "clusters.main.brokers", "value": ["h:9092"], "origin": "environment", "file": "whole.yaml", "line": 4,
        "column": 14, "profile": None, "variables": ["HOST"],
    }  # fmt: skip
    assert rows["clusters.main.version"]["origin"] == "default"
    assert rows["clusters.main.clientId"]["origin"] == "file"


def test_explain_of_bad_files(run):
    result = run("explain", "bad.yaml")
    assert result.exit_code == 1
    assert "geheim" not in result.output


def test_schema(run):
    result = run("schema")
    assert result.exit_code == 0
    assert json.loads(result.output)["title"] == "multilane.yaml"
