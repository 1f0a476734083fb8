"""The handshakes before the first request, as generators driven by the test."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from multilane.client.net.handshake import Reply, authenticate, introduce
from multilane.errors import BrokerError, FrameError, SaslError, UnsupportedVersion
from multilane.secret import Secret
from multilane.wire.messages import ApiKey
from multilane.wire.sasl import PlainConversation
from multilane.wire.versions import SPOKEN, Versions
from response_builder import api_versions_response, as_array, frame_of, make, response_parts

EVERYTHING = Versions({int(api): range_ for api, range_ in SPOKEN.items()})


class ThreeSteps:
    """A conversation that takes two challenges."""

    def __init__(self) -> None:
        self.challenges: list[bytes] = []

    def first(self) -> bytes:
        return b"one"

    def next(self, challenge: bytes) -> bytes | None:
        self.challenges.append(challenge)
        return b"two" if len(self.challenges) == 1 else None


def _reply(entity: Any, correlation_id: int = 7) -> Reply:
    return Reply(as_array(frame_of(entity, correlation_id)), 7)


def _agreed(handshake: Any, reply: Reply) -> Any:
    with pytest.raises(StopIteration) as stopped:
        handshake.send(reply)
    return stopped.value.value


def _login(version: int = 2, **fields: Any) -> Reply:
    parts = response_parts(ApiKey.SASL_AUTHENTICATE, version)
    values = {"auth_bytes": b"", "error_message": None, **fields}
    return _reply(make(parts.SaslAuthenticateResponse, **values))


def _handshaken(code: int = 0, mechanisms: tuple[str, ...] = ("PLAIN",)) -> Reply:
    parts = response_parts(ApiKey.SASL_HANDSHAKE, 1)
    return _reply(make(parts.SaslHandshakeResponse, error_code=code, mechanisms=mechanisms))


# --- introduce -------------------------------------------------------------------------------------------------------


def test_the_newest_introduction_comes_first_and_says_who_we_are():
    handshake = introduce()
    request = next(handshake)
    assert type(request).__version__ == 4
    assert request.client_software_name == "multilane"
    assert request.client_software_version
    versions = _agreed(handshake, _reply(api_versions_response(4, {3: (0, 12)})))
    assert versions.pick(ApiKey.METADATA) == 12


@pytest.mark.parametrize(("offered", "asked"), [({18: (0, 3)}, 3), ({18: (0, 1)}, 1), ({}, 0)])
def test_a_declined_introduction_is_said_again_in_the_brokers_version(offered, asked):
    handshake = introduce()
    next(handshake)
    request = handshake.send(_reply(api_versions_response(0, offered, code=35)))
    assert type(request).__version__ == asked
    versions = _agreed(handshake, _reply(api_versions_response(asked, {3: (0, 9)})))
    assert versions.pick(ApiKey.METADATA) == 9


def test_a_broker_that_declines_what_it_offers_is_not_asked_for_ever():
    handshake = introduce()
    next(handshake)
    with pytest.raises(UnsupportedVersion):
        handshake.send(_reply(api_versions_response(0, {18: (0, 4)}, code=35)))


def test_another_error_is_raised():
    handshake = introduce()
    next(handshake)
    with pytest.raises(BrokerError, match="INVALID_REQUEST"):
        handshake.send(_reply(api_versions_response(4, {}, code=42)))


def test_an_introduction_with_the_wrong_number():
    handshake = introduce()
    next(handshake)
    with pytest.raises(FrameError):
        handshake.send(_reply(api_versions_response(4), correlation_id=8))


# --- authenticate ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lifetime", "expected"),
    [(timedelta(0), None), (timedelta(milliseconds=-1), None), (timedelta(milliseconds=1_500), 1.5)],
)
def test_how_long_a_login_is_good(lifetime, expected):
    handshake = authenticate("PLAIN", PlainConversation("user", Secret("pencil")), EVERYTHING)
    assert next(handshake).mechanism == "PLAIN"
    assert handshake.send(_handshaken()).auth_bytes == b"\0user\0pencil"
    assert _agreed(handshake, _login(session_lifetime=lifetime)) == expected


def test_a_broker_before_lifetimes():
    old = Versions({17: (0, 1), 36: (0, 0)})
    handshake = authenticate("PLAIN", PlainConversation("user", Secret("pencil")), old)
    next(handshake)
    assert type(handshake.send(_handshaken())).__version__ == 0
    assert _agreed(handshake, _login(0)) is None


def test_a_conversation_of_several_steps():
    conversation = ThreeSteps()
    handshake = authenticate("SCRAM-SHA-512", conversation, EVERYTHING)
    next(handshake)
    assert handshake.send(_handshaken(mechanisms=("SCRAM-SHA-512",))).auth_bytes == b"one"
    assert handshake.send(_login(auth_bytes=b"challenge")).auth_bytes == b"two"
    assert _agreed(handshake, _login(auth_bytes=b"proof")) is None
    assert conversation.challenges == [b"challenge", b"proof"]


@pytest.mark.parametrize(
    ("text", "reason"), [("go away", "go away"), (None, "no reason given"), ("", "no reason given")]
)
def test_a_refused_login_says_why(text, reason):
    handshake = authenticate("PLAIN", PlainConversation("user", Secret("pencil")), EVERYTHING)
    next(handshake)
    handshake.send(_handshaken())
    with pytest.raises(SaslError, match=reason):
        handshake.send(_login(error_code=58, error_message=text))


def test_a_refused_mechanism_says_what_is_offered():
    handshake = authenticate("PLAIN", PlainConversation("user", Secret("pencil")), EVERYTHING)
    next(handshake)
    with pytest.raises(SaslError, match=r"does not offer sasl.mechanism PLAIN; it offers none"):
        handshake.send(_handshaken(33, ()))


def test_a_broker_too_old_for_framed_logins():
    handshake = authenticate("PLAIN", PlainConversation("user", Secret("pencil")), Versions({17: (0, 0)}))
    with pytest.raises(UnsupportedVersion):
        next(handshake)
