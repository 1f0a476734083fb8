"""Properties files, as Java reads them."""

from __future__ import annotations

import pytest
import typer

from multilane.cli.command_config import client_properties, parse_properties


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("a=1", {"a": "1"}),
        ("  a = 1 \n", {"a": "1 "}),
        ("a: 1\nb 2\nc\n", {"a": "1", "b": "2", "c": ""}),
        ("# a=1\n! b=2\n\n c=3", {"c": "3"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x=y:z", {"a": "x=y:z"}),
        ("a=one \\\n   two", {"a": "one two"}),
        ("a=back\\\\\nb=1", {"a": "back\\", "b": "1"}),
        (r"a\=b=c\td", {"a=b": "c\td"}),
        ("a=\\u00e4", {"a": "\u00e4"}),
        (
            'sasl.jaas.config=org.X required \\\n  username="a" password="b=c";',
            {"sasl.jaas.config": 'org.X required username="a" password="b=c";'},
        ),
        ("", {}),
        ("a=1\\", {"a": "1"}),
    ],
)
def test_properties(text, found):
    assert parse_properties(text) == found


def test_the_option_overrides_the_file(tmp_path):
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=a:1\nclient.id=me\n")
    assert client_properties(None, file, 5)["bootstrap.servers"] == "a:1"
    assert client_properties("b:2", file, 5) == {
        "default.api.timeout.ms": 5_000,
        "bootstrap.servers": "b:2",
        "client.id": "me",
    }


def test_the_brokers_are_required():
    with pytest.raises(typer.BadParameter, match="--bootstrap-server"):
        client_properties(None, None, 5)
