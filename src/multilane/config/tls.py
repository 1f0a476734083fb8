"""The settings of a TLS context: authorities, our certificate and key, versions, host name verification.

Thread: none (pure values). Reads no file.
"""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass
from typing import Final

from multilane.config.values import Values
from multilane.errors import ConfigError, printable
from multilane.secret import Secret


@dataclass(frozen=True, slots=True)
class PemFile:
    """PEM text in a file."""

    path: str


@dataclass(frozen=True, slots=True)
class PemText:
    """PEM text in the configuration. It may hold a private key, so the repr hides it."""

    text: Secret


Pem = PemFile | PemText


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """`trust` None is the system's store. `key` None with a certificate means that its file also holds the key."""

    trust: Pem | None = None
    certificate: Pem | None = None
    key: Pem | None = None
    key_password: Secret | None = None
    verify_hostname: bool = True
    versions: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")


_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_TRUST: Final = ("ssl.ca.location", "ssl.truststore.location", "ssl.truststore.certificates")
_CERTIFICATE: Final = ("ssl.certificate.location", "ssl.keystore.location", "ssl.keystore.certificate.chain")
_TEXT_OF: Final = {
    "ssl.ca.location": "ssl.truststore.certificates",
    "ssl.truststore.location": "ssl.truststore.certificates",
    "ssl.certificate.location": "ssl.keystore.certificate.chain",
    "ssl.keystore.location": "ssl.keystore.certificate.chain and ssl.keystore.key",
    "ssl.key.location": "ssl.keystore.key",
}
_ONE_LINE: Final = re.compile(r"(-----BEGIN [A-Z0-9 ]+-----) *([A-Za-z0-9+/= ]+?) *(-----END [A-Z0-9 ]+-----) ?")
_CONVERT_TRUST: Final = (
    "export it once with `keytool -exportcert -rfc -keystore FILE -alias NAME` (or `openssl pkcs12 -in FILE -nokeys "
    "-out ca.pem` for PKCS12) and set ssl.ca.location to the PEM file"
)
_CONVERT_KEYS: Final = (
    "convert it once with `keytool -importkeystore -srckeystore FILE -destkeystore keys.p12 -deststoretype PKCS12` "
    "(JKS only) and `openssl pkcs12 -in keys.p12 -out keys.pem`, and set ssl.keystore.location to the PEM file and "
    "ssl.keystore.type=PEM"
)


def parse_tls(values: Values) -> TlsConfig:
    """The TLS part of the properties."""
    _check_store(values, "truststore", _CONVERT_TRUST)
    _check_store(values, "keystore", _CONVERT_KEYS)
    certificate = _one_of(values, _CERTIFICATE)
    key = _key(values)
    if certificate is None and key is not None:
        raise ConfigError("a private key is set without a certificate; set ssl.certificate.location")
    if isinstance(certificate, PemText) and key is None:
        raise ConfigError(f"{values.spelled(_CERTIFICATE[2])} is set without its private key; set ssl.keystore.key")
    if certificate is None and "ssl.key.password" in values.given:
        raise ConfigError(f"{values.spelled('ssl.key.password')} is set without a private key")
    return TlsConfig(
        trust=_one_of(values, _TRUST),
        certificate=certificate,
        key=key,
        key_password=values.secret("ssl.key.password"),
        verify_hostname=values.text("ssl.endpoint.identification.algorithm") == "https",
        versions=_versions(values),
    )


def _check_store(values: Values, store: str, convert: str) -> None:
    """Refuses Java's own store formats and explains how to convert them."""
    location, kind = f"ssl.{store}.location", f"ssl.{store}.type"
    given = values.text(kind)
    if given.upper() not in ("", "PEM"):
        raise ConfigError(f"{values.spelled(kind)}: {printable(given, 40)!r} is not supported; {convert}")
    if values.text(location) and not given:
        raise ConfigError(
            f"{values.spelled(location)} without ssl.{store}.type means a Java keystore (JKS), which is not supported; "
            f"if the file is PEM, set ssl.{store}.type=PEM; if not, {convert}"
        )


def _one_of(values: Values, names: tuple[str, str, str]) -> Pem | None:
    """The single source that is set. The first two names are files, the last is the PEM text itself."""
    given = [name for name in names if name in values.given and values.parsed[name] not in ("", Secret(""))]
    if not given:
        return None
    if len(given) > 1:
        raise ConfigError(f"{values.spelled(given[0])} and {values.spelled(given[1])} exclude each other; keep one")
    text = values.secret(given[0])
    if text is None:
        return _file(values, given[0])
    return PemText(_pem(values, given[0], text, "CERTIFICATE"))


def _key(values: Values) -> Pem | None:
    text = values.secret("ssl.keystore.key")
    if values.text("ssl.key.location") and text is not None:
        raise ConfigError(
            f"{values.spelled('ssl.key.location')} and {values.spelled('ssl.keystore.key')} exclude each other; "
            "keep one"
        )
    if text is not None:
        return PemText(_pem(values, "ssl.keystore.key", text, "PRIVATE KEY"))
    return _file(values, "ssl.key.location") if values.text("ssl.key.location") else None


def _file(values: Values, name: str) -> PemFile:
    path = values.text(name)
    if "-----BEGIN" in path:  # possibly a private key, which must not appear where paths are shown
        raise ConfigError(f"{values.spelled(name)}: this is PEM text, not a path; set {_TEXT_OF[name]} instead")
    return PemFile(path)


def _pem(values: Values, name: str, text: Secret, label: str) -> Secret:
    if f"{label}-----" not in text.reveal():
        raise ConfigError(f"{values.spelled(name)}: the text contains no PEM block of a {label.lower()}")
    return Secret(_ONE_LINE.sub(_unfold, text.reveal()))


def _unfold(block: re.Match[str]) -> str:
    """Restores line breaks: Java accepts PEM with lines joined by spaces, as in properties files; OpenSSL does not."""
    body = "\n".join(textwrap.wrap(block[2].replace(" ", ""), 64))
    return f"{block[1]}\n{body}\n{block[3]}\n"


def _versions(values: Values) -> tuple[str, ...]:
    key = values.spelled("ssl.enabled.protocols")
    requested = values.items("ssl.enabled.protocols")
    for version in requested:
        if version not in _VERSIONS:
            raise ConfigError(f"{key}: {printable(version, 40)!r} is not supported; write TLSv1.2, TLSv1.3 or both")
    if not requested:
        raise ConfigError(f"{key} is empty; write TLSv1.2, TLSv1.3 or both")
    return tuple(version for version in _VERSIONS if version in requested)
