"""Foreign text is escaped and cut before it is logged or printed."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from multilane.escaping import escape_controls, escaped, lines_of, text_of
from multilane.logs import indented, logger

HOSTILE = "k\n2026-01-01 00:00:00,000 INFO multilane: all is well\x1b[2J\x9b1m\u202e\u2028"


@pytest.mark.parametrize(
    "character", ["\n", "\r", "\x1b", "\x00", "\x7f", "\x85", "\x9b", "\u202e", "\u2066", "\u2028"]
)
def test_what_moves_a_terminal_is_escaped(character):
    shown = escape_controls(f"a{character}b")
    assert character not in shown
    assert shown.startswith("a\\")
    assert shown.endswith("b")


def test_readable_text_stays():
    assert escape_controls("Gr\xfc\xdfe, \u65e5\u672c, 100 %") == "Gr\xfc\xdfe, \u65e5\u672c, 100 %"


def test_long_text_is_cut_and_says_so():
    assert escaped("x" * 50, 10) == "x" * 10 + "... (50 characters)"
    assert escaped(b"x" * 50, 10) == "x" * 10 + "... (50 bytes)"


def test_an_error_whose_text_fails_still_has_one():
    class Odd(Exception):
        def __str__(self):
            raise RuntimeError

    assert "Odd" in text_of(Odd())


@pytest.fixture
def lines():
    """What a plain handler writes, line by line."""
    log = logger("multilane.test")
    written: list[str] = []
    handler = logging.Handler()
    handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
    handler.emit = lambda record: written.extend(handler.format(record).split("\n"))
    log.addHandler(handler)
    yield written
    log.removeHandler(handler)


def test_an_argument_cannot_forge_a_log_line(lines):
    logger("multilane.test").warning("%s: %s, %d, %r", HOSTILE, ValueError(HOSTILE), 7, HOSTILE)
    assert len(lines) == 1
    assert lines[0].startswith("WARNING k\\n2026")
    assert lines[0].isprintable()
    assert ", 7, " in lines[0]


def test_a_logged_exception_cannot_forge_a_log_line(lines):
    def fail():
        raise RuntimeError(HOSTILE)

    try:
        fail()
    except RuntimeError:
        logger("multilane.test").exception("it failed")
    assert lines[0] == "ERROR it failed"
    assert any("in fail" in line for line in lines)
    assert all(line.isprintable() for line in lines)
    assert not any(line.startswith("2026") for line in lines)


def test_numbers_stay_numbers(lines):
    logger("multilane.test").warning("%d of %.1f at %d", np.int64(7), np.float64(0.5), 2**70)
    logger("multilane.test").warning("%(name)s", {"name": HOSTILE})
    assert lines[0] == f"WARNING 7 of 0.5 at {2**70}"
    assert lines[1].isprintable()
    assert len(lines) == 2


def test_our_own_lines_stay_lines(lines):
    logger("multilane.test").warning("first%s", indented("second\nthird"))
    assert lines == ["WARNING first", "    second", "    third"]


def test_an_argument_is_cut(lines):
    logger("multilane.test").warning("%s", "x" * 100_000)
    assert len(lines[0]) < 10_000


def test_no_line_of_a_message_looks_like_another_message():
    assert lines_of("refused: a\nerror: forged\r\x1b[2J\n  a problem") == [
        "refused: a",
        "  error: forged\\r\\x1b[2J",
        "  a problem",
    ]
    assert lines_of("") == [""]
