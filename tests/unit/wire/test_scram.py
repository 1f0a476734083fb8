"""SCRAM against the RFC's example, against scramp as the server, and against servers that cheat."""

from __future__ import annotations

import base64
import hashlib
import hmac
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scramp import ScramException, ScramMechanism  # type: ignore[import-untyped]

from multilane.config.security import PasswordLogin
from multilane.errors import SaslError
from multilane.secret import Secret
from multilane.wire.scram import MAX_ITERATIONS, ScramConversation

NONCE = "rOprNGfwEbeRWgbNEkqO"
SALT = base64.b64encode(b"0123456789abcdef").decode()
CANARY = "canary-of-a-password"


def login(mechanism: str = "SCRAM-SHA-256", username: str = "user", password: str = CANARY) -> PasswordLogin:
    return PasswordLogin(mechanism, username, Secret(password))


def opened(password: str = CANARY) -> ScramConversation:
    conversation = ScramConversation(login(password=password), NONCE)
    conversation.first()
    return conversation


def refusal(conversation: ScramConversation, challenge: bytes) -> str:
    with pytest.raises(SaslError) as caught:
        conversation.next(challenge)
    assert CANARY not in str(caught.value)
    assert CANARY not in repr(caught.value.__context__)
    assert str(caught.value).isprintable()
    return str(caught.value)


def test_the_example_of_rfc_7677() -> None:
    conversation = ScramConversation(login(password="pencil"), NONCE)
    assert conversation.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    nonce = "rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    proof = conversation.next(f"r={nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert proof == f"c=biws,r={nonce},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
    assert conversation.next(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=") is None


class Server:
    """scramp in the broker's place."""

    def __init__(self, mechanism: str, users: dict[str, str], iterations: int = 4096) -> None:
        scramp = ScramMechanism(mechanism)
        infos = {user: scramp.make_auth_info(password, iteration_count=iterations) for user, password in users.items()}
        self._server = scramp.make_server(infos.__getitem__)

    def first(self, message: bytes) -> bytes:
        self._server.set_client_first(message.decode())
        return str(self._server.get_server_first()).encode()

    def final(self, message: bytes) -> bytes:
        self._server.set_client_final(message.decode())
        return str(self._server.get_server_final()).encode()


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("username", ["alice", "a=b,c", "=2C", "J\u00fcrgen"])
@pytest.mark.parametrize("password", ["secret", "p,=w", "\u00e4\u0416\u65e5", "with space"])
def test_a_second_implementation_agrees(mechanism: str, username: str, password: str) -> None:
    server = Server(mechanism, {username: password}, iterations=5000)
    conversation = ScramConversation(login(mechanism, username, password), NONCE)
    proof = conversation.next(server.first(conversation.first()))
    assert proof is not None
    assert conversation.next(server.final(proof)) is None


@settings(max_examples=40, deadline=None)
@given(
    username=st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=20),
    # scramp prepares passwords and Kafka does not: the two agree where preparing changes nothing.
    password=st.text(
        st.characters(min_codepoint=0x20, max_codepoint=0x17F, exclude_categories=["C"]), min_size=1
    ).filter(lambda text: unicodedata.normalize("NFKC", text) == text),
)
def test_a_second_implementation_agrees_on_any_text(username: str, password: str) -> None:
    server = Server("SCRAM-SHA-256", {username: password})
    conversation = ScramConversation(login(username=username, password=password), NONCE)
    proof = conversation.next(server.first(conversation.first()))
    assert proof is not None
    assert conversation.next(server.final(proof)) is None


def test_a_wrong_password_is_not_accepted_by_the_server() -> None:
    server = Server("SCRAM-SHA-256", {"user": "right"})
    conversation = ScramConversation(login(password="wrong"), NONCE)
    proof = conversation.next(server.first(conversation.first()))
    assert proof is not None
    with pytest.raises(ScramException):
        server.final(proof)


def test_a_server_without_the_password_is_not_accepted_by_us() -> None:
    """It may accept any proof; its own signature betrays it."""
    impostor = Server("SCRAM-SHA-256", {"user": "a guess"})
    conversation = ScramConversation(login(), NONCE)
    conversation.next(impostor.first(conversation.first()))
    told = base64.b64encode(b"\0" * 32)
    assert "does not know the password" in refusal(conversation, b"v=" + told)


class TestHostileFirstMessage:
    @pytest.mark.parametrize(
        ("message", "text"),
        [
            (f"r={NONCE},s={SALT},i=4096", "does not extend ours"),
            (f"r={NONCE[:-1]},s={SALT},i=4096", "does not extend ours"),
            (f"r=x{NONCE}x,s={SALT},i=4096", "does not extend ours"),
            (f"r=,s={SALT},i=4096", "characters that are not allowed"),
            (f"r={NONCE} \u00e4,s={SALT},i=4096", "characters that are not allowed"),
            (f"r={NONCE}x,s={SALT},i=4095", "asks for 4095 SCRAM iterations; 4096 to 65536 are accepted"),
            (f"r={NONCE}x,s={SALT},i=0", "asks for 0 SCRAM iterations"),
            (f"r={NONCE}x,s={SALT},i={MAX_ITERATIONS + 1}", "asks for 65537 SCRAM iterations; 4096 to 65536"),
            (f"r={NONCE}x,s={SALT},i={'9' * 5000}", "not a number"),
            (f"r={NONCE}x,s={SALT},i=-4096", "not a number"),
            (f"r={NONCE}x,s={SALT},i=\u0664096", "not a number"),
            (f"r={NONCE}x,s={SALT},i=", "not a number"),
            (f"r={NONCE}x,s=,i=4096", "empty SCRAM salt"),
            (f"r={NONCE}x,s=%%%%,i=4096", "salt is not base64"),
            (f"r={NONCE}x,s=\u00e4,i=4096", "salt is not base64"),
            (f"r={NONCE}x,s={SALT}", "lacks nonce, salt or iteration count"),
            (f"r={NONCE}x,i=4096,s={SALT}", "lacks nonce, salt or iteration count"),
            (f"s={SALT},i=4096", "lacks nonce, salt or iteration count"),
            (f"m=ext,r={NONCE}x,s={SALT},i=4096", "extension"),
            ("v=AAAA", "lacks nonce, salt or iteration count"),
            ("junk", "malformed"),
            (",,,", "malformed"),
            ("", "before it proved"),
            ("r=" + "x" * 20_000, "too long"),
            ("e=unknown-user", "refused the login: unknown-user"),
            ("e=bad\x1b[31m,\nthing", "refused the login: bad [31m, thing"),
            ("e=", "no reason given"),
        ],
    )
    def test_is_refused_by_name(self, message: str, text: str) -> None:
        assert text in refusal(opened(), message.encode())

    def test_not_text(self) -> None:
        assert "not text" in refusal(opened(), b"r=\xff\xfe")

    def test_optional_extensions_are_passed_over(self) -> None:
        assert opened().next(f"r={NONCE}x,s={SALT},i=4096,x=more".encode()) is not None


class TestHostileLastMessage:
    def proved(self) -> ScramConversation:
        conversation = opened()
        assert conversation.next(f"r={NONCE}x,s={SALT},i=4096".encode())
        return conversation

    @pytest.mark.parametrize(
        ("message", "text"),
        [
            (b"", "before it proved"),
            (b"v=", "does not know the password"),
            (b"v=AAAA", "does not know the password"),
            (b"v=!!!!", "signature is not base64"),
            (b"x=AAAA", "has no signature"),
            (b"e=invalid-proof", "refused the login: invalid-proof"),
        ],
    )
    def test_is_refused_by_name(self, message: bytes, text: str) -> None:
        assert text in refusal(self.proved(), message)

    @given(st.binary(max_size=64))
    @settings(max_examples=25, deadline=None)
    def test_no_other_signature_passes(self, signature: bytes) -> None:
        refusal(self.proved(), b"v=" + base64.b64encode(signature))


def test_out_of_turn() -> None:
    assert "out of turn" in refusal(ScramConversation(login(), NONCE), b"r=x")


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_bytes_give_a_sasl_error(challenge: bytes) -> None:
    refusal(opened(), challenge)


@pytest.mark.parametrize("nonce", ["", "short", "with,comma" * 3, "space space space space", "\u00e4" * 20])
def test_our_own_nonce_is_checked(nonce: str) -> None:
    with pytest.raises(SaslError, match="nonce"):
        ScramConversation(login(), nonce)


def test_another_mechanism_is_not_scram() -> None:
    with pytest.raises(SaslError, match="not a SCRAM mechanism"):
        ScramConversation(login("SCRAM-SHA-1"), NONCE)


class TestKafkasOwnHash:
    """Kafka hashes the raw UTF-8 of a password, without SASLprep. The salted passwords were made by the ScramFormatter
    of Kafka 4.3.1 (SHA-256, this salt, 4,096 iterations)."""

    @pytest.mark.parametrize(
        ("password", "salted"),
        [
            ("secret", "eYNULt5XDkTjCVlpdxxQOrTvQPPVEPZGsykAbSrSnSQ="),
            ("\u00aa\u2168 \u00a0\u00ad", "w4xaHkKuYAQ9kh7eF+hGZACVxsRHY9jm8nh9ubf4MzY="),
            ("p\u0007", "QNv0VLondI65sYDR1PKf62L9SdqvWE8mmUVeKEdjbdA="),
            ("\u0627\u0031", "se+8fZVgT7/HTsQbeHv8baWks4Xy1sg/RjANewgKvt8="),
        ],
    )
    def test_login_with_a_credential_made_by_kafka(self, password: str, salted: str) -> None:
        conversation = opened(password)
        server_first = f"r={NONCE}x,s={SALT},i=4096"
        final = conversation.next(server_first.encode())
        assert final is not None
        without_proof, _, proof = final.decode().rpartition(",p=")
        signed = f"n=user,r={NONCE},{server_first},{without_proof}".encode()
        client_key = hmac.digest(base64.b64decode(salted), b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
        assert base64.b64decode(proof) == bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(base64.b64decode(salted), b"Server Key", "sha256")
        told = base64.b64encode(hmac.digest(server_key, signed, "sha256"))
        assert conversation.next(b"v=" + told) is None


def test_lone_surrogates_in_the_user_name() -> None:
    with pytest.raises(SaslError, match="user name has characters that cannot be sent"):
        ScramConversation(login(username="a\ud800"), NONCE)


def test_lone_surrogates_in_the_password() -> None:
    message = f"r={NONCE}x,s={SALT},i=4096".encode()
    assert "password has characters that cannot be sent" in refusal(opened(f"{CANARY}\ud800"), message)
