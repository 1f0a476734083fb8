"""TLS against a real server on loopback: what is accepted, and the sentence for each way it is refused."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from certificates import EXPIRED, NOT_YET, Authority, Identity, self_signed
from multilane.client.net.tls import explain, tls_context
from multilane.config.tls import PemFile, PemText, TlsConfig
from multilane.errors import ConfigError, TlsError
from multilane.secret import Secret

HOST = "127.0.0.1"
DEADLINE = 10.0
CANARY = "canary-of-the-key-password"

AUTHORITY = Authority()
SERVER = AUTHORITY.server()
CLIENT = AUTHORITY.client()


def text(pem: str) -> PemText:
    return PemText(Secret(pem))


TRUSTING = TlsConfig(trust=text(AUTHORITY.certificate))


def with_client(identity: Identity = CLIENT) -> TlsConfig:
    return TlsConfig(trust=TRUSTING.trust, certificate=text(identity.certificate), key=text(identity.key))


@contextmanager
def serving(talk: Callable[[socket.socket], None]) -> Iterator[int]:
    """One connection on loopback, handled on a thread that ends with the block."""
    with socket.create_server((HOST, 0)) as listener:
        listener.settimeout(DEADLINE)

        def run() -> None:
            peer, _ = listener.accept()
            peer.settimeout(DEADLINE)
            with peer:
                try:
                    talk(peer)
                except OSError:
                    peer.close()

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            thread.join(DEADLINE)
            assert not thread.is_alive()


def tls_server(
    identity: Identity, tmp_path: Path, *, client_authority: Authority | None = None, old: bool = False
) -> Callable[[socket.socket], None]:
    """Shakes hands, says hello, and waits for the client to go."""
    pem = tmp_path / "server.pem"
    pem.write_text(identity.both)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_authority.certificate)
    if old:
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = ssl.TLSVersion.TLSv1_1
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.maximum_version = ssl.TLSVersion.TLSv1_1

    def talk(peer: socket.socket) -> None:
        with context.wrap_socket(peer, server_side=True) as secured:
            secured.sendall(b"hello")
            secured.recv(1)

    return talk


def greeting(config: TlsConfig, port: int, host: str = HOST) -> tuple[bytes, str | None]:
    """What the server says after the handshake and the version, or the explained error of either."""
    context = tls_context(config)
    with ExitStack() as stack:
        raw = stack.enter_context(socket.create_connection((HOST, port), DEADLINE))
        try:
            secured = stack.enter_context(context.wrap_socket(raw, server_hostname=host))
            return secured.recv(5), secured.version()
        except OSError as error:
            raise explain(error, host, port) from error


def refused(config: TlsConfig, talk: Callable[[socket.socket], None], host: str = HOST) -> TlsError:
    with serving(talk) as port, pytest.raises(TlsError) as caught:
        greeting(config, port, host)
    sentence = str(caught.value)
    assert sentence.startswith(f"TLS with {host}:{port} failed: ")
    assert "\n" not in sentence
    assert "_ssl.c" not in sentence
    return caught.value


class TestAccepted:
    def test_inline_authority_and_address(self, tmp_path: Path) -> None:
        with serving(tls_server(SERVER, tmp_path)) as port:
            assert greeting(TRUSTING, port) == (b"hello", "TLSv1.3")

    def test_host_name(self, tmp_path: Path) -> None:
        with serving(tls_server(SERVER, tmp_path)) as port:
            assert greeting(TRUSTING, port, "localhost")[0] == b"hello"

    def test_authority_from_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "ca.pem"
        path.write_text(AUTHORITY.certificate)
        with serving(tls_server(SERVER, tmp_path)) as port:
            assert greeting(TlsConfig(trust=PemFile(str(path))), port)[0] == b"hello"

    def test_only_tls_1_2_when_asked(self, tmp_path: Path) -> None:
        config = TlsConfig(trust=TRUSTING.trust, versions=("TLSv1.2",))
        with serving(tls_server(SERVER, tmp_path)) as port:
            assert greeting(config, port) == (b"hello", "TLSv1.2")

    def test_wrong_host_passes_only_with_verification_off(self, tmp_path: Path) -> None:
        config = TlsConfig(trust=TRUSTING.trust, verify_hostname=False)
        with serving(tls_server(AUTHORITY.server(["elsewhere.test"]), tmp_path)) as port:
            assert greeting(config, port)[0] == b"hello"

    def test_client_certificate_inline(self, tmp_path: Path) -> None:
        with serving(tls_server(SERVER, tmp_path, client_authority=AUTHORITY)) as port:
            assert greeting(with_client(), port)[0] == b"hello"

    def test_client_certificate_in_one_file(self, tmp_path: Path) -> None:
        path = tmp_path / "client.pem"
        path.write_text(CLIENT.both)
        config = TlsConfig(trust=TRUSTING.trust, certificate=PemFile(str(path)))
        with serving(tls_server(SERVER, tmp_path, client_authority=AUTHORITY)) as port:
            assert greeting(config, port)[0] == b"hello"

    def test_encrypted_key_in_a_file_of_its_own(self, tmp_path: Path) -> None:
        (tmp_path / "c.pem").write_text(CLIENT.certificate)
        (tmp_path / "k.pem").write_text(CLIENT.encrypted_key(CANARY))
        config = TlsConfig(
            trust=TRUSTING.trust,
            certificate=PemFile(str(tmp_path / "c.pem")),
            key=PemFile(str(tmp_path / "k.pem")),
            key_password=Secret(CANARY),
        )
        with serving(tls_server(SERVER, tmp_path, client_authority=AUTHORITY)) as port:
            assert greeting(config, port)[0] == b"hello"


class TestRefused:
    """The nine cases, and their neighbours."""

    def test_wrong_host(self, tmp_path: Path) -> None:
        error = refused(TRUSTING, tls_server(AUTHORITY.server(["elsewhere.test"]), tmp_path), "localhost")
        assert "its certificate is not for localhost" in str(error)
        assert error.fatal
        assert not error.retriable

    def test_wrong_address(self, tmp_path: Path) -> None:
        error = refused(TRUSTING, tls_server(AUTHORITY.server(["elsewhere.test"]), tmp_path))
        assert f"its certificate is not for {HOST}" in str(error)

    def test_wrong_authority(self, tmp_path: Path) -> None:
        error = refused(TRUSTING, tls_server(Authority("Another").server(), tmp_path))
        assert "authority that is not trusted" in str(error)

    def test_system_store_does_not_know_our_authority(self, tmp_path: Path) -> None:
        error = refused(TlsConfig(), tls_server(SERVER, tmp_path))
        assert "authority that is not trusted" in str(error)

    def test_expired(self, tmp_path: Path) -> None:
        error = refused(TRUSTING, tls_server(AUTHORITY.server(validity=EXPIRED), tmp_path))
        assert "has expired" in str(error)

    def test_not_valid_yet(self, tmp_path: Path) -> None:
        error = refused(TRUSTING, tls_server(AUTHORITY.server(validity=NOT_YET), tmp_path))
        assert "not valid yet" in str(error)

    def test_self_signed(self, tmp_path: Path) -> None:
        assert "self-signed" in str(refused(TRUSTING, tls_server(self_signed(), tmp_path)))

    def test_client_certificate_shown_by_a_server(self, tmp_path: Path) -> None:
        config = TlsConfig(trust=TRUSTING.trust, verify_hostname=False)
        assert "not meant for servers" in str(refused(config, tls_server(CLIENT, tmp_path)))

    def test_tls_1_1_server(self, tmp_path: Path) -> None:
        error = refused(TRUSTING, tls_server(SERVER, tmp_path, old=True))
        assert "no TLS version that ssl.enabled.protocols allows" in str(error)

    def test_a_broker_older_than_the_versions_asked_for(self, tmp_path: Path) -> None:
        """The server stands for one without TLS 1.3; its own context shows that it is the client who refuses."""
        pem = tmp_path / "server.pem"
        pem.write_text(SERVER.both)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(pem)
        context.maximum_version = ssl.TLSVersion.TLSv1_2

        def talk(peer: socket.socket) -> None:
            with context.wrap_socket(peer, server_side=True) as secured:
                secured.sendall(b"hello")

        with serving(talk) as port:
            assert greeting(TRUSTING, port) == (b"hello", "TLSv1.2")
        error = refused(TlsConfig(trust=TRUSTING.trust, versions=("TLSv1.3",)), talk)
        assert "no TLS version that ssl.enabled.protocols allows" in str(error)

    def test_plaintext_server_that_answers(self) -> None:
        def talk(peer: socket.socket) -> None:
            peer.recv(64)
            peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            peer.recv(1)

        assert "does not speak TLS" in str(refused(TRUSTING, talk))

    def test_plaintext_broker_that_closes(self) -> None:
        """A Kafka PLAINTEXT port reads our hello as a frame of 369 MB and closes."""
        error = refused(TRUSTING, lambda peer: peer.close())
        assert "the port may not speak TLS" in str(error)
        assert error.retriable
        assert not error.fatal

    def test_client_certificate_missing(self, tmp_path: Path) -> None:
        error = refused(TRUSTING, tls_server(SERVER, tmp_path, client_authority=AUTHORITY))
        assert "requires a client certificate; set ssl.certificate.location" in str(error)

    def test_client_certificate_missing_with_tls_1_2(self, tmp_path: Path) -> None:
        config = TlsConfig(trust=TRUSTING.trust, versions=("TLSv1.2",))
        error = refused(config, tls_server(SERVER, tmp_path, client_authority=AUTHORITY))
        assert "client certificate" in str(error)

    def test_client_certificate_untrusted(self, tmp_path: Path) -> None:
        config = with_client(Authority("Another").client())
        error = refused(config, tls_server(SERVER, tmp_path, client_authority=AUTHORITY))
        assert "does not accept our client certificate: it does not trust the authority" in str(error)

    def test_client_certificate_expired(self, tmp_path: Path) -> None:
        config = with_client(AUTHORITY.client(validity=EXPIRED))
        error = refused(config, tls_server(SERVER, tmp_path, client_authority=AUTHORITY))
        assert "does not accept our client certificate: it has expired" in str(error)


class TestExplain:
    def test_time_out_may_be_tried_again(self) -> None:
        error = explain(TimeoutError(), "b", 9093)
        assert "did not answer" in str(error)
        assert error.retriable

    def test_ipv6_stands_in_brackets(self) -> None:
        assert str(explain(TimeoutError(), "::1", 9093)).startswith("TLS with [::1]:9093 failed")

    @pytest.mark.parametrize(
        ("alert", "text"),
        [
            ("SSLV3_ALERT_BAD_CERTIFICATE", "it requires a client certificate; set ssl.certificate.location"),
            ("SSLV3_ALERT_CERTIFICATE_UNKNOWN", "does not accept our client certificate: it does not trust"),
        ],
    )
    def test_the_alerts_of_java_brokers(self, alert: str, text: str) -> None:
        error = ssl.SSLError(1, "alert")
        error.reason = alert
        explained = explain(error, "b", 9093)
        assert text in str(explained)
        assert explained.fatal

    def test_unknown_reason_is_reported_in_one_clean_line(self) -> None:
        error = explain(ValueError("odd\n\x1bthing" + "x" * 1000), "b", 9093)
        assert str(error).startswith("TLS with b:9093 failed: odd  thing")
        assert len(str(error)) < 300


class TestFiles:
    @pytest.mark.parametrize("content", ["", "no certificate"])
    def test_authority_file_without_certificate(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "ca.pem"
        path.write_text(content)
        with pytest.raises(ConfigError, match="no PEM certificate can be read") as caught:
            tls_context(TlsConfig(trust=PemFile(str(path))))
        assert str(path) in str(caught.value)

    def test_authority_file_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="No such file"):
            tls_context(TlsConfig(trust=PemFile(str(tmp_path / "none.pem"))))

    def test_authority_text_broken(self) -> None:
        broken = "-----BEGIN CERTIFICATE-----\n\u00e4\n-----END CERTIFICATE-----\n"
        with pytest.raises(ConfigError, match="no PEM certificate can be read"):
            tls_context(TlsConfig(trust=text(broken)))

    def test_client_file_missing(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="No such file"):
            tls_context(TlsConfig(certificate=PemFile(str(tmp_path / "none.pem"))))

    def test_key_of_another_certificate(self) -> None:
        with pytest.raises(ConfigError, match="does not belong to the certificate"):
            tls_context(TlsConfig(certificate=text(CLIENT.certificate), key=text(AUTHORITY.client().key)))

    def test_encrypted_key_without_password(self) -> None:
        config = TlsConfig(certificate=text(CLIENT.certificate), key=text(CLIENT.encrypted_key(CANARY)))
        with pytest.raises(ConfigError, match=r"is encrypted; set ssl\.key\.password"):
            tls_context(config)

    def test_wrong_password_is_not_shown(self) -> None:
        config = TlsConfig(
            certificate=text(CLIENT.certificate),
            key=text(CLIENT.encrypted_key(CANARY)),
            key_password=Secret("canary-of-a-wrong-password"),
        )
        with pytest.raises(ConfigError, match="cannot be decrypted") as caught:
            tls_context(config)
        assert "canary" not in str(caught.value)

    def test_no_file_and_no_descriptor_is_left(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        before = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
        tls_context(with_client())
        after = set(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else set()
        assert len(after) == len(before)
        assert list(tmp_path.iterdir()) == []

    def test_without_anonymous_files_a_temporary_one_serves(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delattr(os, "memfd_create", raising=False)
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        with serving(tls_server(SERVER, tmp_path, client_authority=AUTHORITY)) as port:
            context = with_client()
            (tmp_path / "server.pem").unlink()
            assert greeting(context, port)[0] == b"hello"
        assert list(tmp_path.iterdir()) == []
