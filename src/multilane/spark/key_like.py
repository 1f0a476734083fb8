"""Recognises files that look like keys or passwords, by name or content.

Thread: none (pure).

A guess that errs on the safe side: certificates alone (`ca.pem`) pass, files with a private key do not. A password in
an ordinary file is not recognised (one in a configuration is, by `literal_secrets`).
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
    "*credentials",
    "*.token",
    "service-account*.json",
    "service_account*.json",
    *(f"*{word}*.{ending}" for word in ("secret", "credential", "password") for ending in _TEXTS),
)
_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|PuTTY-User-Key-File-")
_KEYSTORES: Final = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")  # JKS, JCEKS
# DER: a sequence that begins with a version is a private key (0, 1) or PKCS#12 (3); one that begins with the name of a
# password-based scheme is an encrypted key. A certificate begins with another sequence.
_LENGTH: Final = rb"(?:[\x00-\x7f]|\x81.|\x82..)"
_BINARY_KEY: Final = re.compile(
    rb"0" + _LENGTH + rb"(?:\x02\x01[\x00\x01\x03][\x02\x04\x30]"
    rb"|0" + _LENGTH + rb"\x06.\x2a\x86\x48\x86\xf7\x0d\x01[\x05\x0c])",
    re.DOTALL,
)
_UTF_16: Final = (b"\xff\xfe", b"\xfe\xff")  # as some editors save text
_COPY: Final = re.compile(r"(?:~|\.(?:bak|backup|old|orig|save|copy|tmp|[0-9]+))+$")


def sounds_like_key(name: str) -> bool:
    """A copy of a key by its name without what copies add; the hidden file that a link leads to, as if it were not."""
    plain = _COPY.sub("", name.lower()).lstrip(".")
    return any(fnmatchcase(called, pattern) for called in (name.lower(), plain) for pattern in NAMES)


def looks_like_key(data: bytes) -> bool:
    text = data.replace(b"\0", b"") if data.startswith(_UTF_16) else data
    is_binary = data.startswith(_KEYSTORES) or _BINARY_KEY.match(data) is not None
    return is_binary or _PRIVATE_KEY.search(text) is not None
