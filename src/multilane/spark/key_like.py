"""Recognises files that look like keys or passwords, by name or content.

Thread: none (pure).

A guess that errs on the safe side: certificates alone (`ca.pem`) pass, files with a private key do not. A password in
an ordinary file is not recognised.
"""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import Final

_TEXTS: Final = ("yaml", "yml", "json", "toml", "ini", "cfg", "conf", "properties", "txt", "env")
NAMES: Final = (
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.jceks",
    "*.bcfks",
    "*.keystore",
    "*.keytab",
    "*.ppk",
    "*.kdbx",
    "*.env",
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "*_rsa",
    "*_ed25519",
    "htpasswd",
    "netrc",
    "pgpass",
    "kubeconfig*",
    "secret",
    "secrets",
    "*.secret",
    "*.secrets",
    "*password",
    "*passwd",
    "credentials",
    "service-account*.json",
    "service_account*.json",
    *(f"*{word}*.{ending}" for word in ("secret", "credential", "password") for ending in _TEXTS),
)
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-")
_KEYSTORES: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS


def sounds_like_key(name: str) -> bool:
    return any(fnmatchcase(name.lower(), pattern) for pattern in NAMES)


def looks_like_key(data: bytes) -> bool:
    return data.startswith(_KEYSTORES) or _PRIVATE_KEY.search(data) is not None
