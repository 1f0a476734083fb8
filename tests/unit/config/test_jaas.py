"""`sasl.jaas.config` parsed as text; no error ever shows any part of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.config.jaas import JaasLogin, parse_jaas
from multilane.errors import ConfigError
from multilane.secret import Secret

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def parse(text: str) -> JaasLogin:
    return parse_jaas("sasl.jaas.config", Secret(text))


@pytest.mark.parametrize(
    ("text", "login"),
    [
        (f'{PLAIN} required username="alice" password="secret";', ("PLAIN", "alice", "secret")),
        (f"{SCRAM} required username=alice password=secret ;", ("SCRAM", "alice", "secret")),
        (f"{SCRAM} required username='al\"ice' password='s';", ("SCRAM", 'al"ice', "s")),
        (f'{SCRAM} Required\n  password = "p"\n  username = "u" ;\n', ("SCRAM", "u", "p")),
        (f'{SCRAM} required username="u" password="a\\"b\\\\c;=\'";', ("SCRAM", "u", "a\"b\\c;='")),
        (f'{SCRAM} required username="u" password="\\t\\101\\z";', ("SCRAM", "u", "\tAz")),
        (f'/* note */ {SCRAM} required // why\n username="u" password="//p";', ("SCRAM", "u", "//p")),
        (f'{SCRAM} required username="\u00fc" password="";', ("SCRAM", "\u00fc", "")),
    ],
)
def test_read(text: str, login: tuple[str, str, str]) -> None:
    parsed = parse(text)
    assert (parsed.family, parsed.username, parsed.password.reveal()) == login
    assert "***" in repr(parsed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "semicolon"),
        ("canary", "semicolon"),
        (f'{SCRAM} required username="u" password="canary"', "semicolon"),
        (f'{SCRAM} required username="u" password="canary;', "quote is not closed"),
        (f'{SCRAM} username="u" password="canary";', "must be 'required'"),
        (f'{SCRAM} required username="u";', "password missing"),
        (f"{SCRAM} required;", "password and username missing"),
        (f'{SCRAM} required username="u" password="canary" tokenauth="true";', "only the options"),
        (f'{SCRAM} required username="u" username="canary" password="p";', "username is given twice"),
        (f'{SCRAM} required username="u" password;', "name=value"),
        (f'{SCRAM} required username="u" password canary "p";', "name=value"),
        (f'{SCRAM} required username="u" password=;', "name=value"),
        (
            f'{SCRAM} required username="u" password="p"; {PLAIN} required username="u" password="canary";',
            "more than one",
        ),
        ('com.sun.security.auth.module.JndiLoginModule required user.provider.url="canary";', "only PlainLoginModule"),
        ("org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required ;", "token.provider"),
    ],
)
def test_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    assert message in str(caught.value)
    assert "canary" not in str(caught.value)


@given(st.text(), st.text())
def test_any_quoted_credentials_come_back(username: str, password: str) -> None:
    def quoted(text: str) -> str:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        return f'"{escaped}"'

    login = parse(f"{SCRAM} required username={quoted(username)} password={quoted(password)};")
    assert (login.username, login.password.reveal()) == (username, password)


@given(st.text(alphabet=" =;\"'\\/*\nab", max_size=40))
def test_any_text_gives_a_fixed_sentence(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^sasl\.jaas\.config: "):
        parse(text)
