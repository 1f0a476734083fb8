"""`multilane errors` without a broker: its usage errors and its output."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from multilane.cli import errors_view, foreign_text, main
from multilane.wire.records.record import Record

NOWHERE = ["--bootstrap-server", "127.0.0.1:1", "--timeout", "1"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "e"],
        ["show", "e-0-5", *NOWHERE],
        ["show", "e/0@x", *NOWHERE],
        ["replay", "e", *NOWHERE],
        ["replay", "e", *NOWHERE, "--to", "e"],
        ["replay", "e", *NOWHERE, "--to", "t", "--rate", "fast"],
        ["replay", "e", *NOWHERE, "--to", "t", "--rate", "0/s"],
        ["replay", "e", *NOWHERE, "--to", "t", "--since", "yesterday"],
        ["replay", "e", *NOWHERE, "--to", "t", "--partition", "-1"],
        ["list", "e", *NOWHERE, "-o", "xml"],
        ["list", "e", "--command-config", "not-there.properties"],
        ["list"],
    ],
    ids=" ".join,
)
def test_wrong_use_is_code_2(arguments):
    assert CliRunner().invoke(main.app, ["errors", *arguments]).exit_code == 2


@pytest.mark.parametrize("arguments", [["list", "e"], ["show", "e/0@5"], ["replay", "e", "--to", "t", "--execute"]])
def test_no_connection_is_code_3(arguments):
    result = CliRunner().invoke(main.app, ["errors", *arguments, *NOWHERE])
    assert result.exit_code == 3
    assert result.stderr.startswith("error: ")


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        (None, "null"),
        (b"", ""),
        ("t\u00e4xt".encode(), "t\u00e4xt"),
        (b"\xff\x00a", "\\xff\\x00a"),
        (b"\x1b[31mred\n", "\\x1b[31mred\\n"),
        (b"x" * 9_000, "x" * 2_000 + "... (9000 bytes)"),
        ("\u202e", "\\u202e"),
    ],
)
def test_no_record_writes_to_the_terminal_in_its_own_way(content, shown):
    assert foreign_text.escaped(content) == shown


@pytest.mark.parametrize(
    ("time", "shown"),
    [(0, "1970-01-01T00:00:00.000+00:00"), (-1, "1969-12-31T23:59:59.999+00:00"), (2**62, str(2**62))],
)
def test_times(time, shown):
    assert foreign_text.moment(time) == shown


def test_bytes_for_programs():
    assert foreign_text.payload(None) is None
    assert foreign_text.payload(b"a") == {"size": 1, "text": "a"}
    assert foreign_text.payload(b"\xff") == {"size": 1, "base64": "/w=="}


@pytest.mark.parametrize("character", ["\x9b", "\x7f", "\u202e", "\x1b", "\U000e0041", "\n"])
def test_json_for_programs_is_safe_on_a_terminal(character):
    record = Record(
        "e", 0, 5, 0, 0, f"a{character}b".encode(), None, (("X-ErrorMessage", f"\u65e5{character}".encode()),)
    )
    facts = errors_view.record_facts(record, is_replayed=False)
    result = foreign_text.as_json(facts)
    assert all(line.isprintable() for line in result.split("\n"))
    assert json.loads(result) == facts
    assert "\u65e5" in result


def test_a_stack_is_shown_line_by_line(capsys):
    stack = b'Traceback (most recent call last):\n  File "shop.py", line 3, in index\nValueError: no\x1b[2J stock'
    errors_view.show_record(Record("e", 0, 5, 0, 0, None, None, (("X-ErrorStack", stack),)), is_replayed=False)
    lines = capsys.readouterr().out.splitlines()
    assert any('File "shop.py", line 3, in index' in line for line in lines)
    assert any("ValueError: no\\x1b[2J stock" in line for line in lines)
    assert all(line.isprintable() for line in lines)


def test_a_record_is_shown_without_markup(capsys):
    record = Record("e", 0, 5, 0, 0, b"[bold]k[/bold]", b"[red]", (("[link=x]", b"\x07"),))
    errors_view.show_record(record, is_replayed=True)
    result = capsys.readouterr().out
    assert "[bold]k[/bold]" in result
    assert "header [link=x]" in result
    assert "\\x07" in result
    assert "\x07" not in result
