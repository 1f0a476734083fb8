"""A small certificate authority for tests: everything a broker or a client may show, good and bad, as PEM text.

Thread: any (values). Keys are EC P-256: made in a millisecond.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_DAY = timedelta(days=1)


@dataclass(frozen=True)
class Identity:
    """A certificate and its private key."""

    certificate: str
    key: str

    @property
    def both(self) -> str:
        """Key and certificate in one text, as Java's PEM keystores have them."""
        return self.key + self.certificate

    def encrypted_key(self, password: str) -> str:
        key = serialization.load_pem_private_key(self.key.encode(), None)
        return key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(password.encode()),
        ).decode()


@dataclass(frozen=True)
class Validity:
    """When a certificate counts, in days from now."""

    start: int = -1
    end: int = 30


VALID = Validity()
EXPIRED = Validity(-30, -1)
NOT_YET = Validity(10, 30)


class Authority:
    """Signs certificates for brokers and clients."""

    def __init__(self, name: str = "Test Authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = _builder(self._name, self._name, self._key.public_key(), VALID)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self.certificate = _pem(builder.sign(self._key, hashes.SHA256()))

    def server(self, hosts: Sequence[str] = ("localhost", "127.0.0.1"), validity: Validity = VALID) -> Identity:
        """A broker's certificate for host names and IP addresses."""
        return self._issue(hosts[0], _alternative_names(hosts), ExtendedKeyUsageOID.SERVER_AUTH, validity)

    def client(self, name: str = "client", validity: Validity = VALID) -> Identity:
        return self._issue(name, None, ExtendedKeyUsageOID.CLIENT_AUTH, validity)

    def _issue(
        self,
        name: str,
        alternatives: x509.SubjectAlternativeName | None,
        usage: x509.ObjectIdentifier,
        validity: Validity,
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._name, key.public_key(), validity)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if alternatives is not None:
            builder = builder.add_extension(alternatives, critical=False)
        return Identity(_pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key))


def self_signed(hosts: Sequence[str] = ("localhost", "127.0.0.1")) -> Identity:
    """A broker's certificate that no authority signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name(hosts[0])
    builder = _builder(name, name, key.public_key(), VALID).add_extension(_alternative_names(hosts), critical=False)
    return Identity(_pem(builder.sign(key, hashes.SHA256())), _key_pem(key))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, validity: Validity
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + validity.start * _DAY)
        .not_valid_after(now + validity.end * _DAY)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _alternative_names(hosts: Sequence[str]) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([_general_name(host) for host in hosts])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
