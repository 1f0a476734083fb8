"""hash(group.id) % partitions as Java computes it; the expected hashes are Java's."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from multilane.cli import main
from multilane.client.admin.offsets_partition import java_hash, offsets_partition


@pytest.mark.parametrize(
    ("text", "hashed"),
    [
        ("a", 97),
        ("hello", 99162322),
        ("Aa", 2112),
        ("BB", 2112),
        ("polygenelubricants", -(1 << 31)),
        ("\u00e9", 233),
        ("\U0001f600", 1772899),  # two UTF-16 units
    ],
)
def test_a_hash_is_that_of_java(text, hashed):
    assert java_hash(text) == hashed


def test_the_smallest_number_has_no_absolute_value():
    assert offsets_partition("polygenelubricants", 50) == 0


def test_partitions():
    assert offsets_partition("hello", 50) == 22
    assert offsets_partition("hello", 1) == 0
    with pytest.raises(ValueError, match="at least one"):
        offsets_partition("hello", 0)
    with pytest.raises(ValueError, match=r"group\.id must not be empty"):
        offsets_partition("", 50)


def test_the_command_needs_no_broker_if_it_is_given_the_number():
    ran = CliRunner().invoke(main.app, ["offsets-partition", "hello", "a", "--partitions", "50"])
    assert (ran.exit_code, ran.stdout) == (0, "22\thello\n47\ta\n")
