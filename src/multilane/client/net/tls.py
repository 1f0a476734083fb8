"""Creates TLS contexts, and explains each way in which a handshake fails in one sentence.

Thread: any. `tls_context` reads files and is called once per connection key, off the network thread; `explain` is pure.

Certificates are always verified. A private key given as text reaches OpenSSL through an anonymous file that no other
process can open by name (or a 0600 file that is removed at once). It is never left on disk.
"""

from __future__ import annotations

import contextlib
import os
import ssl
import tempfile
from collections.abc import Iterator
from typing import Final

from multilane.config.tls import Pem, PemFile, PemText, TlsConfig
from multilane.errors import ConfigError, TlsError, printable

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(config: TlsConfig) -> ssl.SSLContext:
    """The context of a configuration, or a ConfigError that names the file at fault."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[config.versions[0]]
    context.maximum_version = _VERSIONS[config.versions[-1]]
    context.check_hostname = config.verify_hostname
    context.verify_mode = ssl.CERT_REQUIRED
    _trust(context, config.trust)
    if config.certificate is not None:
        _present(context, config, config.certificate)
    return context


def _trust(context: ssl.SSLContext, trust: Pem | None) -> None:
    try:
        match trust:
            case None:
                context.load_default_certs(ssl.Purpose.SERVER_AUTH)
            case PemFile(path) if os.path.isdir(path):
                context.load_verify_locations(capath=path)
            case PemFile(path):
                context.load_verify_locations(cafile=path)
            case PemText(text):
                # Only comments around the blocks may contain other characters. OpenSSL skips them, Python rejects them.
                context.load_verify_locations(cadata=text.reveal().encode("ascii", "replace").decode())
    except (ssl.SSLError, ValueError):
        raise ConfigError(f"{_named(trust, 'the trusted certificates')}: no PEM certificate can be read") from None
    except OSError as error:
        raise ConfigError(f"{_named(trust, 'the trusted certificates')}: {error.strerror}") from None


def _present(context: ssl.SSLContext, config: TlsConfig, certificate: Pem) -> None:
    """Load the client certificate. The password function always returns a password: OpenSSL would prompt for one."""
    asked = False

    def password() -> str:
        nonlocal asked
        asked = True
        return "" if config.key_password is None else config.key_password.reveal()

    named = _named(config.key or certificate, "the private key given as text")
    try:
        with _as_file(certificate) as chain, _as_file(config.key) as key:
            context.load_cert_chain(chain or "", key, password)
    except (ssl.SSLError, ValueError) as error:
        raise ConfigError(_key_fault(named, error, asked, config.key_password is not None)) from None
    except OSError as error:
        raise ConfigError(f"client certificate or key ({named}): {error.strerror}") from None


def _key_fault(named: str, error: Exception, asked: bool, given: bool) -> str:
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return f"{named}: the private key does not belong to the certificate"
    if asked and not given:
        return f"{named}: the private key is encrypted; set ssl.key.password"
    if asked:
        return f"{named}: the private key cannot be decrypted with ssl.key.password"
    return f"{named}: no PEM certificate with its private key can be read"


def _named(pem: Pem | None, otherwise: str) -> str:
    return pem.path if isinstance(pem, PemFile) else otherwise


@contextlib.contextmanager
def _as_file(pem: Pem | None) -> Iterator[str | None]:
    """A path from which OpenSSL can read the PEM text, valid inside the `with` block."""
    if not isinstance(pem, PemText):
        yield pem.path if pem is not None else None
        return
    if hasattr(os, "memfd_create") and os.path.isdir("/proc/self/fd"):
        with open(os.memfd_create("pem", os.MFD_CLOEXEC), "wb") as memory:
            memory.write(pem.text.reveal().encode())
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
        return
    with tempfile.NamedTemporaryFile() as file:  # created with mode 0600
        file.write(pem.text.reveal().encode())
        file.flush()
        yield file.name


# --- failed handshakes -----------------------------------------------------------------------------------------------

# OpenSSL's verification results (X509_V_ERR_*).
_VERIFY: Final = {
    9: "its certificate is not valid yet; check the clocks and the certificate",
    10: "its certificate has expired",
    18: "its certificate is self-signed and not among the trusted ones; add it with ssl.ca.location if you trust it",
    19: "its certificate is signed by an authority that is not trusted; give the authority with ssl.ca.location",
    20: "its certificate is signed by an authority that is not trusted; give the authority with ssl.ca.location",
    21: "its certificate is signed by an authority that is not trusted; give the authority with ssl.ca.location",
    23: "its certificate was revoked",
    24: "a certificate in its chain does not belong to a certificate authority",
    26: "its certificate is not meant for servers",
    66: "the key of its certificate is too weak",
    67: "the key of a certificate in its chain is too weak",
    68: "the signature of its certificate is too weak",
}
_HOST_MISMATCH: Final = (62, 64)
_OLD: Final = "it offers no TLS version that ssl.enabled.protocols allows (TLS 1.2 or newer)"
_NOT_TLS: Final = "it does not speak TLS on this port; the listener is probably PLAINTEXT or SASL_PLAINTEXT"
_NO_CLIENT: Final = "it requires a client certificate; set ssl.certificate.location and ssl.key.location"
_BAD_CLIENT: Final = "it does not accept our client certificate"
_REASONS: Final = {
    "UNSUPPORTED_PROTOCOL": _OLD,
    "TLSV1_ALERT_PROTOCOL_VERSION": _OLD,
    "SSLV3_ALERT_PROTOCOL_VERSION": _OLD,
    "WRONG_SSL_VERSION": _OLD,
    "WRONG_VERSION_NUMBER": _NOT_TLS,
    "RECORD_LAYER_FAILURE": _NOT_TLS,
    "HTTP_REQUEST": _NOT_TLS,
    "UNKNOWN_PROTOCOL": _NOT_TLS,
    "PACKET_LENGTH_TOO_LONG": _NOT_TLS,
    "TLSV13_ALERT_CERTIFICATE_REQUIRED": _NO_CLIENT,
    "TLSV1_ALERT_UNKNOWN_CA": f"{_BAD_CLIENT}: it does not trust the authority that signed it",
    # A Java broker sends "bad certificate" when it got none, and "unknown" for most other faults.
    "SSLV3_ALERT_BAD_CERTIFICATE": f"{_NO_CLIENT} (or the one given is malformed)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": f"{_BAD_CLIENT}: it has expired",
    "SSLV3_ALERT_CERTIFICATE_REVOKED": f"{_BAD_CLIENT}: it was revoked",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": f"{_BAD_CLIENT}: it does not trust the issuer, or the certificate has expired",
    "SSLV3_ALERT_UNSUPPORTED_CERTIFICATE": f"{_BAD_CLIENT}: its type is not supported",
    "TLSV1_ALERT_ACCESS_DENIED": f"{_BAD_CLIENT}: access denied",
    "SSLV3_ALERT_HANDSHAKE_FAILURE": "there is no cipher in common, or it requires a client certificate",
    "NO_SHARED_CIPHER": "there is no cipher in common",
}


def explain(error: Exception, host: str, port: int) -> TlsError:
    """Explain a failed TLS handshake with a broker in one sentence. The caller chains the cause.

    With TLS 1.3 a broker checks the client certificate after the handshake: its alert arrives with the first read. So
    the caller passes every ssl.SSLError of a connection here, not only those of the handshake itself."""
    where = f"TLS with {f'[{host}]' if ':' in host else host}:{port} failed"
    match error:
        case ssl.SSLCertVerificationError() if error.verify_code in _HOST_MISMATCH:
            return TlsError(
                f"{where}: its certificate is not for {host}; bootstrap.servers and advertised.listeners must use "
                "a name that the certificate contains"
            )
        case ssl.SSLCertVerificationError():
            reason = _VERIFY.get(error.verify_code, printable(str(error.verify_message), 200))
            return TlsError(f"{where}: {reason}")
        case ssl.SSLEOFError() | ssl.SSLZeroReturnError() | ConnectionError() | TimeoutError():
            return _interrupted(where, error)
        case ssl.SSLError():
            reason = error.reason or ""
            return TlsError(f"{where}: {_REASONS.get(reason, printable(reason or str(error), 200))}")
        case _:
            return TlsError(f"{where}: {printable(str(error), 200) or type(error).__name__}")


def _interrupted(where: str, error: Exception) -> TlsError:
    """Only this error may be retried: a broker that is shutting down closes its connections too."""
    how = "did not answer" if isinstance(error, TimeoutError) else "closed the connection"
    interrupted = TlsError(
        f"{where}: the broker {how} during the handshake; the port may not speak TLS, the broker may require a client "
        "certificate, or it may be shutting down"
    )
    interrupted.retriable, interrupted.fatal = True, False
    return interrupted
