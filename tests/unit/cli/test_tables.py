"""Tables keep words whole at any width, and piped output is never wrapped."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from multilane.cli.tables import UNWRAPPED, show_table

WORDS = [
    "clusters.main.producerConfig.requiredAcks",
    "WaitForAll",
    "multilane.yaml:12",
    "a sentence of seven quite short words",
]


def table():
    made = Table(title="a title that is longer than the table below it would be if it were narrow")
    for heading in ("setting", "value", "from", "why"):
        made.add_column(heading)
    made.add_row(*map(Text, WORDS))
    made.add_row("x", "y", "z", "short")
    return made


def shown(width):
    stream = io.StringIO()
    show_table(Console(file=stream, width=width, force_terminal=True, color_system=None), table())
    return stream.getvalue()


@pytest.mark.parametrize("width", [20, 40, 60, 79, 80, 90, 100, 120, 160, 300])
def test_no_word_is_broken(width):
    result = shown(width)
    for word in " ".join(WORDS).split():
        assert word in result


@pytest.mark.parametrize("width", [90, 100, 120, 160])
def test_a_table_that_fits_stays_within_the_width(width):
    assert all(len(line) <= width for line in shown(width).splitlines() if "title" not in line)


def test_without_a_terminal_each_row_is_one_line():
    assert WORDS[-1] in shown(UNWRAPPED)
    assert len([line for line in shown(UNWRAPPED).splitlines() if "requiredAcks" in line and "seven" in line]) == 1


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "a-directory-with-quite-a-long-name-for-a-test-of-narrow-terminals.yaml"
    path.write_text(
        "clusters: {main: {clientId: shop, brokers: 'localhost:9092', producerConfig: {requiredAcks: all}}}\n"
    )
    return path


def test_piped_output_is_never_wrapped(config):
    command = [sys.executable, "-m", "multilane", "config", "explain", str(config)]
    environment = {**os.environ, "COLUMNS": "80", "FORCE_COLOR": "1"}
    result = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
    [line] = [line for line in result.splitlines() if "requiredAcks" in line]
    assert config.name in line


def test_a_terminal_of_80_columns_shows_whole_words(config):
    command = [sys.executable, "-m", "multilane", "config", "explain", str(config)]
    ours, theirs = pty.openpty()
    try:
        with subprocess.Popen(
            command, stdout=theirs, stdin=subprocess.DEVNULL, env={**os.environ, "COLUMNS": "80"}
        ) as running:
            os.close(theirs)
            result = _all_of(ours)
            assert running.wait() == 0
    finally:
        os.close(ours)
    assert "clusters.main.producerConfig.requiredAcks" in result


def _all_of(terminal):
    result = b""
    while True:
        try:
            more = os.read(terminal, 65_536)
        except OSError:  # Linux reports the end of a terminal this way
            return result.decode()
        if not more:
            return result.decode()
        result += more


def _piped(*arguments):
    command = [sys.executable, "-m", "multilane", *arguments]
    environment = {**os.environ, "COLUMNS": "80"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def test_piped_help_has_whole_lines():
    """Options were cut (`--bootstrap-server…`), and texts were wrapped in boxes."""
    result = _piped("errors", "replay", "--help")
    assert "--bootstrap-server, --brokers" in result.stdout
    assert "Allow this topic as the target that a record names in its headers; may be repeated." in result.stdout
    assert not set("╭│╰…") & set(result.stdout)


def test_a_piped_error_has_the_whole_path():
    path = f"/{'long' * 50}/multilane.yaml"
    result = _piped("config", "explain", path)
    assert result.returncode == 2
    assert path in result.stderr
    assert "╭" not in result.stderr
