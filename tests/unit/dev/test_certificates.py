"""Certificates that TLS accepts, and those it must refuse, checked with Python's own TLS over memory."""

from __future__ import annotations

import ssl
import stat

import pytest

from multilane.dev.certificates import Authority, make_certificates


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, host: str) -> None:
    """Both ends in one thread, no socket; raises what the client raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname=host),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        for end in list(ends):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            ends.remove(end)
        if not ends:
            return
    raise AssertionError("the handshake does not end")


def contexts(pair, ca, client_pair=None):
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(pair.certificate, pair.key)
    client = ssl.create_default_context(cafile=ca)
    if client_pair is not None:
        server.load_verify_locations(ca)
        server.verify_mode = ssl.CERT_REQUIRED
        client.load_cert_chain(client_pair.certificate, client_pair.key)
    return server, client


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_the_usual_set_works_both_ways(tmp_path, host):
    made = make_certificates(tmp_path)
    handshake(*contexts(made.server, made.ca, made.client), host)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"days": (-10, -1)}, "expired"),
        ({"days": (1, 10)}, "not yet valid"),
        ({"names": ("elsewhere.example",)}, "mismatch"),
    ],
)
def test_bad_ones_are_bad_for_the_reason_asked_for(tmp_path, wanted, said):
    authority = Authority(tmp_path)
    with pytest.raises(ssl.SSLCertVerificationError, match=said):
        handshake(*contexts(authority.issue("bad", **wanted), authority.path), "localhost")


def test_a_foreign_signature_is_refused(tmp_path):
    ours, theirs = Authority(tmp_path / "ours"), Authority(tmp_path / "theirs")
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(*contexts(theirs.issue("server"), ours.path), "localhost")


def test_private_keys_are_private(tmp_path):
    pair = make_certificates(tmp_path).server
    for path in (pair.key, pair.keystore):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(pair.key) not in repr(pair)
