"""`bootstrap.servers`: host and port pairs.

Thread: none (pure). Resolves no name.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from typing import Final

from multilane.errors import ConfigError, printable

Address = tuple[str, int]

_BRACKETED: Final = re.compile(r"\[([^\[\]]*)\](.*)", re.DOTALL)
_HOST: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})", re.ASCII)
_PORT_MAX: Final = 65_535


def parse_addresses(key: str, entries: Iterable[str]) -> tuple[Address, ...]:
    """The addresses in the order given, each once."""
    found = dict.fromkeys(_address(key, entry) for entry in entries)
    if not found:
        raise ConfigError(f"{key} is empty; write host:port, or several separated by commas")
    return tuple(found)


def _address(key: str, entry: str) -> Address:
    if "@" in entry:
        raise ConfigError(
            f"{key}: an entry contains an @; write host:port, and set credentials with sasl.username/sasl.password"
        )
    shown = f"{key}: {printable(entry, 80)!r}"
    if "://" in entry:
        raise ConfigError(f"{shown} has a scheme; write host:port alone and set security.protocol")
    bracketed = _BRACKETED.fullmatch(entry)
    if bracketed is not None:
        host, rest = bracketed[1], bracketed[2]
        _check_ipv6(shown, host)
    else:
        host, colon, port = entry.partition(":")
        rest = colon + port
        if port.count(":") > 0:
            raise ConfigError(f"{shown} has more than one colon; write an IPv6 address in brackets: [::1]:9092")
        if _HOST.fullmatch(host) is None:
            raise ConfigError(f"{shown} has no valid host name; write host:port")
    return host, _port(shown, host, rest)


def _check_ipv6(shown: str, host: str) -> None:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        raise ConfigError(f"{shown} has no IPv6 address between its brackets; write [::1]:9092") from None


def _port(shown: str, host: str, rest: str) -> int:
    if rest in ("", ":"):
        raise ConfigError(f"{shown} has no port; write {host if ':' not in host else f'[{host}]'}:9092")
    digits = rest.removeprefix(":")
    if not rest.startswith(":") or not digits.isascii() or not digits.isdigit() or len(digits) > 5:
        raise ConfigError(f"{shown} has a port that is not a number")
    port = int(digits)
    if not 0 < port <= _PORT_MAX:
        raise ConfigError(f"{shown} has a port outside 1 to {_PORT_MAX}")
    return port
