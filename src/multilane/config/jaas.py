"""Parses `sasl.jaas.config`, Java's notation for a user name and a password, as text.

Thread: none (pure). Loads no class. No error message contains any part of the value: all of it counts as a secret.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from multilane.errors import ConfigError
from multilane.secret import Secret

_MODULES: Final = {
    "org.apache.kafka.common.security.plain.PlainLoginModule": "PLAIN",
    "org.apache.kafka.common.security.scram.ScramLoginModule": "SCRAM",
}
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/"""
    r"""|(?P<double>"(?:[^"\\\n]|\\.)*")|(?P<single>'(?:[^'\\\n]|\\.)*')"""
    r"""|(?P<mark>[=;])|(?P<word>[^\s"'=;]+)""",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3]?[0-7]{1,2}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_OPTIONS: Final = frozenset({"username", "password"})


@dataclass(frozen=True, slots=True)
class JaasLogin:
    """The parsed text: the family of mechanisms (PLAIN or SCRAM) and the credentials."""

    family: str
    username: str
    password: Secret


def parse_jaas(key: str, config: Secret) -> JaasLogin:
    """The single login module of the text, with its user name and password."""
    tokens = _tokens(key, config.reveal())
    if len(tokens) < 2 or tokens[-1] != (";", True):
        raise ConfigError(f"{key}: the entry does not end with a semicolon")
    module, flag = tokens[0][0], tokens[1][0]
    family = _MODULES.get(module)
    if family is None:
        raise ConfigError(
            f"{key}: only PlainLoginModule and ScramLoginModule are supported; for OAUTHBEARER set "
            "sasl.oauthbearer.token.provider, for anything else sasl.username and sasl.password"
        )
    if flag.lower() not in _FLAGS:
        raise ConfigError(f"{key}: the word after the login module must be 'required'")
    options = _options(key, tokens[2:-1])
    missing = sorted(_OPTIONS - options.keys())
    if missing:
        raise ConfigError(f"{key}: {' and '.join(missing)} missing")
    return JaasLogin(family, options["username"], Secret(options["password"]))


def _tokens(key: str, text: str) -> list[tuple[str, bool]]:
    """(text, whether it is a mark) for each word, quoted text and mark."""
    tokens: list[tuple[str, bool]] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ConfigError(f"{key}: a quote is not closed")
        at = match.end()
        quoted = match["double"] or match["single"]
        if quoted is not None:
            tokens.append((_ESCAPE.sub(_unescape, quoted[1:-1]), False))
        elif match["mark"] or match["word"]:
            tokens.append((match[0], match["mark"] is not None))
    return tokens


def _unescape(match: re.Match[str]) -> str:
    escaped = match[1]
    return chr(int(escaped, 8)) if escaped[0] in "01234567" else _ESCAPED.get(escaped, escaped)


def _options(key: str, tokens: list[tuple[str, bool]]) -> dict[str, str]:
    options: dict[str, str] = {}
    if (";", True) in tokens:
        raise ConfigError(f"{key}: more than one login module; give one")
    if len(tokens) % 3:
        raise ConfigError(f"{key}: the options are not name=value pairs; quote values with double quotes")
    for name, equals, value in zip(tokens[::3], tokens[1::3], tokens[2::3], strict=True):
        if name[1] or equals != ("=", True) or value[1]:
            raise ConfigError(f"{key}: the options are not name=value pairs; quote values with double quotes")
        if name[0] not in _OPTIONS:
            raise ConfigError(f"{key}: only the options username and password are supported")
        if name[0] in options:
            raise ConfigError(f"{key}: {name[0]} is given twice")
        options[name[0]] = value[0]
    return options
