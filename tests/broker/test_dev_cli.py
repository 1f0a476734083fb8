"""`multilane dev kafka` in the foreground, and whether what it prints is enough to connect."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from multilane.dev import jars
from multilane.java import find_java

pytestmark = pytest.mark.broker

PROGRAM = [sys.executable, "-c", "from multilane.cli.main import main; main()", "dev", "kafka", "--port", "0"]


def sections(lines: list[str]) -> dict[str, dict[str, str]]:
    """Listener -> client properties, from the printed text."""
    found: dict[str, dict[str, str]] = {}
    for line in lines:
        if line.startswith("# "):
            found[line[2:]] = {}
        elif "=" in line and found:
            key, _, value = line.partition("=")
            found[list(found)[-1]][key] = value
    return found


@pytest.mark.parametrize(
    ("number", "sasl", "listener"), [(signal.SIGTERM, "scram", "SASL_SSL"), (signal.SIGINT, "plain", "SASL_PLAINTEXT")]
)
def test_printed_properties_connect_and_a_signal_ends_it(tmp_path, number, sasl, listener):
    command = [*PROGRAM, "--tls", "--sasl", sasl, "--data", str(tmp_path / "data")]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        lines: list[str] = []
        for line in program.stdout:
            lines.append(line.strip())
            if line.startswith("Ctrl-C"):
                break
        found = sections(lines)
        assert found.keys() == {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}, lines
        assert_java_connects(found[listener], tmp_path / "client.properties")
        program.send_signal(number)
        assert "stopping" in program.stdout.read()
        assert program.wait(60) == 0
        assert "shut down completely" in (tmp_path / "data" / "node-1" / "broker.log").read_text()
    finally:
        program.kill()
        program.wait()
        program.stdout.close()


def assert_java_connects(properties: dict[str, str], file) -> None:
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    java = find_java()
    command = [java.program, "-XX:TieredStopAtLevel=1", "-cp", jars.installed(java).classpath]
    command += ["org.apache.kafka.tools.BrokerApiVersionsCommand", "--command-config", file]
    command += ["--bootstrap-server", properties["bootstrap.servers"]]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert told.returncode == 0, told.stderr
    assert "ApiVersions(18)" in told.stdout
