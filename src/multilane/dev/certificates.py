"""Throwaway certificates for TLS listeners and their clients.

Thread: any.

An `Authority` signs any certificate, including those that a client must refuse (expired, wrong host name). Private keys
are readable by the owner only. Only this module imports `cryptography`, which the extra `dev` installs.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from multilane.clock import Clock, SystemClock
from multilane.errors import DevKafkaError

try:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
except ImportError as error:
    raise DevKafkaError("TLS listeners need the package cryptography: pip install 'multilane[dev]'") from error

SERVER_NAMES: Final = ("localhost", "127.0.0.1")
_DAY: Final = datetime.timedelta(days=1)
_USES: Final = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """The PEM files of one certificate. `keystore` has key and chain in one file, as Kafka expects."""

    certificate: Path
    key: Path = field(repr=False)
    keystore: Path = field(repr=False)


@dataclass(frozen=True, slots=True)
class Certificates:
    """The certificates of a cluster with TLS; `authority` signs more, valid or not."""

    ca: Path
    server: KeyPair
    client: KeyPair
    authority: Authority = field(repr=False)


class Authority:
    """A certificate authority with its files in one directory."""

    def __init__(self, directory: Path, name: str = "multilane dev CA", clock: Clock | None = None) -> None:
        self._directory = directory
        self._now = datetime.datetime.fromtimestamp((clock or SystemClock()).wall(), datetime.UTC)
        directory.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = self._builder(self._name, self._name, self._key.public_key(), (-1, 365))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=True), critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())
        self.path = directory / "ca.pem"
        self.path.write_bytes(_pem(self._certificate))

    def issue(
        self,
        stem: str,
        *,
        names: Sequence[str] = SERVER_NAMES,
        subject: str | None = None,
        days: tuple[int, int] = (-1, 365),
    ) -> KeyPair:
        """A certificate for `names` (DNS names and addresses), valid between the two `days` counted from now."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_name(subject or stem), self._name, key.public_key(), days)
        builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        builder = builder.add_extension(_key_usage(signs_certificates=False), critical=True)
        builder = builder.add_extension(x509.ExtendedKeyUsage(_USES), critical=False)
        if names:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_alternative_name(n) for n in names]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        return self._write(stem, key, certificate)

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, days: tuple[int, int]
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now + days[0] * _DAY)
            .not_valid_after(self._now + days[1] * _DAY)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )

    def _write(self, stem: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> KeyPair:
        key_pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        pair = KeyPair(*(self._directory / f"{stem}{end}.pem" for end in ("", "-key", "-keystore")))
        pair.certificate.write_bytes(_pem(certificate))
        _write_private(pair.key, key_pem)
        _write_private(pair.keystore, key_pem + _pem(certificate) + _pem(self._certificate))
        return pair


def make_certificates(directory: Path) -> Certificates:
    """A new authority, a server certificate for the loopback names and a client certificate."""
    authority = Authority(directory)
    return Certificates(
        authority.path,
        authority.issue("server", subject="localhost"),
        authority.issue("client", names=(), subject="multilane client"),
        authority,
    )


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _alternative_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _write_private(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
