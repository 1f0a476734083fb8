"""PLAIN and OAUTHBEARER as bytes, and the choice of a conversation for a configured login."""

from __future__ import annotations

import json

import pytest

from multilane.config.security import PasswordLogin, Token, TokenLogin
from multilane.errors import SaslError
from multilane.secret import Secret
from multilane.wire.sasl import PlainConversation, TokenConversation, begin
from multilane.wire.scram import ScramConversation

NONCE = "fyko+d2lbbFgONRv9qkxdawL"
CANARY = "canary.token-1"


def never() -> Token:
    raise AssertionError("a conversation is handed its token, it does not fetch one")


def token(value: str = CANARY, **extensions: str) -> Token:
    return Token(Secret(value), expires_at=1.0, principal="alice", extensions=extensions)


class TestBegin:
    @pytest.mark.parametrize(
        ("mechanism", "kind"),
        [("PLAIN", PlainConversation), ("SCRAM-SHA-256", ScramConversation), ("SCRAM-SHA-512", ScramConversation)],
    )
    def test_password(self, mechanism: str, kind: type) -> None:
        assert isinstance(begin(PasswordLogin(mechanism, "u", Secret("p")), nonce=NONCE), kind)

    def test_token(self) -> None:
        login = TokenLogin(never, (("logicalCluster", "lkc-1"),))
        conversation = begin(login, nonce=NONCE, token=token())
        assert conversation.first() == f"n,,\x01auth=Bearer {CANARY}\x01logicalCluster=lkc-1\x01\x01".encode()

    def test_token_missing(self) -> None:
        with pytest.raises(SaslError, match="needs a token"):
            begin(TokenLogin(never), nonce=NONCE)


class TestPlain:
    def test_one_message(self) -> None:
        conversation = PlainConversation("al\u00efce", Secret("s3cret,="))
        assert conversation.first() == b"\0al\xc3\xafce\0s3cret,="
        assert conversation.next(b"") is None

    def test_a_challenge_is_refused(self) -> None:
        with pytest.raises(SaslError, match="challenge"):
            PlainConversation("u", Secret("p")).next(b"more")

    @pytest.mark.parametrize(
        ("user", "password"), [("a\0b", CANARY), ("a", f"{CANARY}\0"), ("\ud800", CANARY), ("a", f"{CANARY}\udfff")]
    )
    def test_what_cannot_be_sent(self, user: str, password: str) -> None:
        with pytest.raises(SaslError, match="cannot carry") as caught:
            PlainConversation(user, Secret(password))
        assert CANARY not in str(caught.value)
        assert caught.value.__context__ is None


class TestToken:
    def test_accepted(self) -> None:
        conversation = TokenConversation(token(), {})
        assert conversation.first() == f"n,,\x01auth=Bearer {CANARY}\x01\x01".encode()
        assert conversation.next(b"") is None
        assert conversation.refusal is None

    def test_extensions_of_the_token_win(self) -> None:
        conversation = TokenConversation(token(pool="p-2"), {"pool": "p-1", "cluster": "c"})
        assert conversation.first() == f"n,,\x01auth=Bearer {CANARY}\x01pool=p-2\x01cluster=c\x01\x01".encode()

    def test_refused_then_dummy_then_raised(self) -> None:
        conversation = TokenConversation(token(), {})
        conversation.first()
        told = json.dumps({"status": "invalid_token", "scope": "kafka", "openid-configuration": "x"}).encode()
        assert conversation.next(told) == b"\x01"
        assert isinstance(conversation.refusal, SaslError)
        with pytest.raises(SaslError, match="refused the token: status invalid_token, scope kafka"):
            conversation.next(b"")

    @pytest.mark.parametrize(
        ("challenge", "text"),
        [
            (b"\xff\xfe", "not readable"),
            (b"[1]", "not readable"),
            (b"[" * 4096, "not readable"),
            (b"{}", "gave no reason"),
            (b'{"status": 5}', "gave no reason"),
            (b'{"status": "a\\u0000\\nb"}', "status a  b"),
        ],
    )
    def test_strange_refusals(self, challenge: bytes, text: str) -> None:
        conversation = TokenConversation(token(), {})
        assert conversation.next(challenge) == b"\x01"
        assert text in str(conversation.refusal)

    def test_a_token_that_is_sent_back_is_masked(self) -> None:
        conversation = TokenConversation(token(), {})
        conversation.next(json.dumps({"status": f"bad token {CANARY}"}).encode())
        assert CANARY not in str(conversation.refusal)
        assert "***" in str(conversation.refusal)

    @pytest.mark.parametrize("bad", ["", "two words", "line\nbreak", "sep\x01arator", "comm,a"])
    def test_token_characters(self, bad: str) -> None:
        with pytest.raises(SaslError, match="cannot have") as caught:
            TokenConversation(token(bad), {})
        assert not bad or bad not in str(caught.value)

    @pytest.mark.parametrize(("name", "value"), [("auth", "x"), ("a1", "x"), ("", "x"), ("a", ""), ("a", "b\x01c=d")])
    def test_extension_characters(self, name: str, value: str) -> None:
        with pytest.raises(SaslError, match="extension"):
            TokenConversation(token(), {name: value})
