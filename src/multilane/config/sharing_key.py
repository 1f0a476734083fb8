"""Which consumers may be one: those whose brokers, group, credentials and isolation level are the same.

Thread: any. Reads the files of certificates and keys that the settings name.

The order and spelling of brokers do not matter, any other difference does. A password is only in the key as a digest
with a salt of this process, a certificate as the digest of what its file holds now: a changed file is another key. What
records become (payload types, functions) is no part of it.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import astuple, dataclass, replace
from typing import Final

from multilane.config.connection import ConnectionConfig
from multilane.config.consumer import ConsumerConfig
from multilane.config.security import PasswordLogin, TokenLogin
from multilane.config.tls import Pem, PemFile, TlsConfig
from multilane.secret import Secret

_SALT: Final = os.urandom(16)


@dataclass(frozen=True, slots=True, repr=False)
class SharingKey:
    """`topic` is None if consumers of several topics may share. `proof` and `tls` are digests."""

    topic: str | None
    brokers: tuple[tuple[str, int], ...]
    group: str | None
    protocol: str
    mechanism: str = ""
    user: str = ""
    proof: str = ""
    tls: str = ""
    read_committed: bool = False

    @property
    def digest(self) -> str:
        """Short, for logs and metrics. Another process has another one for the same key."""
        return _digest(repr(astuple(self)).encode())[:12]

    def __repr__(self) -> str:
        return f"SharingKey({self.digest})"

    __str__ = __repr__

    def differences(self, other: SharingKey) -> tuple[str, ...]:
        """What keeps two consumers apart, in words without secrets."""
        names = {
            "topic": "topic",
            "brokers": "brokers",
            "group": "group",
            "protocol": "security protocol",
            "mechanism": "SASL mechanism",
            "user": "SASL user name",
            "proof": "SASL credentials",
            "tls": "TLS certificates",
            "read_committed": "isolation level",
        }
        return tuple(what for name, what in names.items() if getattr(self, name) != getattr(other, name))


def sharing_key(config: ConsumerConfig, topic: str | None) -> SharingKey:
    key = client_key(config.connection)
    return replace(key, topic=topic, group=config.group.group_id, read_committed=config.read_committed)


def client_key(connection: ConnectionConfig) -> SharingKey:
    """What any clients must have in common to share a connection: brokers and credentials."""
    mechanism, user, proof = _login(connection)
    brokers = tuple(sorted({(host.casefold(), port) for host, port in connection.bootstrap_servers}))
    tls = _tls(connection.security.tls)
    return SharingKey(None, brokers, None, connection.security.protocol.value, mechanism, user, proof, tls)


def _login(connection: ConnectionConfig) -> tuple[str, str, str]:
    login = connection.security.sasl
    if isinstance(login, PasswordLogin):
        return login.mechanism, login.username, _digest(login.password.reveal().encode())
    if isinstance(login, TokenLogin):
        return login.mechanism, "", _digest(repr((id(login.provider), login.extensions)).encode())
    return "", "", ""


def _tls(config: TlsConfig | None) -> str:
    if config is None:
        return ""
    parts = [*map(_identity, (config.trust, config.certificate, config.key)), str(config.verify_hostname)]
    parts += [*config.versions, _digest(config.key_password.reveal().encode()) if config.key_password else ""]
    return _digest("\n".join(parts).encode())


def _identity(pem: Pem | None) -> str:
    if pem is None:
        return ""
    if isinstance(pem, PemFile):
        try:
            with open(pem.path, "rb") as file:
                return _digest(file.read())
        except OSError:
            return f"unreadable {pem.path}"  # connecting reports it
    text: Secret = pem.text
    return _digest(text.reveal().encode())


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, key=_SALT, digest_size=16).hexdigest()
