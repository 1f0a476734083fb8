"""One connection over a real socket, with the test as the broker and the clock."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from typing import Any

import pytest

from multilane.client.net.connection import TRANSITIONS, Answer, Connection, ConnectionLimits, ConnectionState
from multilane.client.net.frames import FramePool
from multilane.client.net.requests import NEVER, RawResponse, UnsentRequest
from multilane.client.net.requests import Channel as ChannelName
from multilane.client.net.transport import WRITE, open_transport
from multilane.errors import FrameError, MultilaneError, NetworkError, OperationTimeout, SaslError, UnknownBrokerCode
from multilane.secret import Secret
from multilane.types import Node, NodeId
from multilane.wire.compose import metadata_request
from multilane.wire.messages import ApiKey
from multilane.wire.sasl import PlainConversation
from response_builder import (
    api_versions_response,
    frame_of,
    framed,
    make,
    metadata_response,
    read_request,
    response_parts,
)
from scripted_broker import read_frame

LIMITS = ConnectionLimits(
    connect_timeout=10.0,
    request_timeout=30.0,
    frame_cap=1 << 20,
    client_id="me",
    allocate=FramePool().take,
    draw=lambda: 0.5,
)
NODES = [Node(NodeId(1), "one", 1)]
METADATA_VERSION = 13


class PlainLogin:
    """Stands for `Login`: a password, and now and then a token that is still on its way."""

    mechanism = "PLAIN"

    def __init__(self, *, late: int = 0) -> None:
        self.late = late

    def begin(self) -> PlainConversation | None:
        if self.late:
            self.late -= 1
            return None
        return PlainConversation("user", Secret("pencil"))


class Line:
    def __init__(self, login: PlainLogin | None = None, *, limits: ConnectionLimits = LIMITS) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        address = self._listener.getsockname()
        transport = open_transport([(socket.AF_INET, address)], ("127.0.0.1", address[1]), None)
        node = Node(NodeId(1), "127.0.0.1", address[1])
        self.connection = Connection(
            node,
            ChannelName("test"),
            transport,
            login,
            limits,
            now=0.0,  # type: ignore[arg-type]
        )
        self.peer, _ = self._listener.accept()
        self.peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer.settimeout(10.0)
        self.failures: list[MultilaneError] = []

    def serve(self, now: float = 0.0, *, write: bool = False) -> list[Answer]:
        """Wait until the socket can do something, and let the connection do it."""
        fd = self.connection.transport.fileno()
        ready = select.select([] if write else [fd], [fd] if write else [], [], 10.0)
        assert any(ready), "nothing came"
        return self.connection.on_ready(now)

    def heard(self) -> tuple[ApiKey, int, int, Any]:
        frame = read_frame(self.peer)
        assert frame is not None
        return read_request(frame)

    def say(self, data: bytes) -> None:
        self.peer.sendall(data)

    def reply(self, entity: Any, correlation_id: int) -> None:
        self.say(framed(frame_of(entity, correlation_id)))

    def introduced(self, now: float = 0.0) -> Line:
        self.serve(now, write=True)
        api, version, correlation, _ = self.heard()
        assert (api, version) == (ApiKey.API_VERSIONS, 4)
        self.reply(api_versions_response(version), correlation)
        assert self.serve(now) == []
        return self

    def ask(self, now: float = 0.0, **more: Any) -> UnsentRequest:
        request = UnsentRequest(
            ApiKey.METADATA,
            lambda version: metadata_request(version, ["t"], create=False),
            lambda *_: None,
            lambda error, _: self.failures.append(error),
            **more,
        )
        self.connection.send(request, now)
        return request

    def ask_and_hear(self, now: float = 0.0, **more: Any) -> tuple[UnsentRequest, int]:
        request = self.ask(now, **more)
        api, version, correlation, _ = self.heard()
        assert (api, version) == (ApiKey.METADATA, METADATA_VERSION)
        return request, correlation

    def close(self) -> None:
        self.connection.close()
        self.peer.close()
        self._listener.close()


@pytest.fixture
def lines() -> Iterator[list[Line]]:
    made: list[Line] = []
    yield made
    for line in made:
        line.close()


@pytest.fixture
def line(lines: list[Line]) -> Line:
    lines.append(Line())
    return lines[-1].introduced()


def _metadata(topic: str = "t") -> Any:
    return metadata_response(METADATA_VERSION, NODES, {topic: {0: (1, 1)}})


def _answered(correlation: int, topic: str = "t") -> bytes:
    return framed(frame_of(_metadata(topic), correlation))


# --- making one's acquaintance ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "end"), list(product(ConnectionState, ConnectionState)), ids=lambda s: s.name)
def test_every_move_is_in_the_table_or_refused(line, start, end):
    line.connection.state = start
    if end in TRANSITIONS[start]:
        line.connection._to(end)
        assert line.connection.state is end
    else:
        with pytest.raises(AssertionError, match="no move"):
            line.connection._to(end)
    line.connection.state = ConnectionState.READY


def test_introduction_makes_it_ready(line):
    assert line.connection.state is ConnectionState.READY
    assert line.connection.versions.pick(ApiKey.METADATA) == METADATA_VERSION
    assert line.connection.may_send(0.0)
    assert line.connection.next_timer(0.0) == NEVER


def test_a_broker_that_does_not_know_our_introduction_is_asked_again_in_its_own_version(lines):
    line = Line()
    lines.append(line)
    line.serve(write=True)
    _, _, correlation, _ = line.heard()
    line.reply(api_versions_response(0, {18: (0, 2), 3: (0, 9)}, code=35), correlation)
    line.serve()
    api, version, correlation, _ = line.heard()
    assert (api, version) == (ApiKey.API_VERSIONS, 2)
    line.reply(api_versions_response(2, {18: (0, 2), 3: (0, 9)}), correlation)
    line.serve()
    assert line.connection.state is ConnectionState.READY
    assert line.connection.versions.pick(ApiKey.METADATA) == 9


def test_nothing_may_be_sent_before_it_is_ready_and_patience_ends(lines):
    line = Line()
    lines.append(line)
    assert line.connection.wants == WRITE
    assert not line.connection.may_send(0.0)
    assert line.connection.next_timer(1.0) == pytest.approx(9.0)
    with pytest.raises(NetworkError, match="timed out while connecting"):
        line.connection.tick(10.0)
    line.serve(5.0, write=True)
    assert not line.connection.may_send(5.0)
    assert line.connection.next_timer(5.0) == pytest.approx(30.0)
    with pytest.raises(NetworkError, match="timed out while introducing"):
        line.connection.tick(35.0)


# --- frames ----------------------------------------------------------------------------------------------------------


def test_an_answer_split_at_every_byte(line):
    length = len(_answered(0))
    for cut in range(1, length):
        request, correlation = line.ask_and_hear()
        data = _answered(correlation)
        line.say(data[:cut])
        assert line.serve() == []
        line.say(data[cut:])
        (answer,) = line.serve()
        assert answer.request is request
        assert answer.response == _metadata()


def test_several_answers_in_one_read_come_in_order(line):
    asked = [line.ask_and_hear() for _ in range(3)]
    assert line.connection.in_flight == 3
    line.say(b"".join(_answered(c, f"topic-{i}") for i, (_, c) in enumerate(asked)))
    answers = line.serve()
    assert [a.request for a in answers] == [r for r, _ in asked]
    assert [a.response.topics[0].name for a in answers] == ["topic-0", "topic-1", "topic-2"]
    assert line.connection.in_flight == 0


def test_raw_answers_are_not_parsed(line):
    request, correlation = line.ask_and_hear(raw=True)
    line.say(framed(b"\0\0\0\x63whatever"))
    (answer,) = line.serve()
    assert answer.request is request
    assert isinstance(answer.response, RawResponse)
    assert (answer.response.version, answer.response.correlation_id) == (METADATA_VERSION, correlation)
    assert answer.response.frame.tobytes() == b"\0\0\0\x63whatever"


def test_a_wrong_correlation_id_breaks_the_connection(line):
    request, correlation = line.ask_and_hear()
    line.say(_answered(correlation + 1))
    with pytest.raises(FrameError, match=f"answers request {correlation + 1}"):
        line.serve()
    assert line.connection.close() == [request]


def test_an_answer_that_nobody_asked_for(line):
    line.say(_answered(9))
    with pytest.raises(NetworkError, match="not requested"):
        line.serve()


@pytest.mark.parametrize("length", [(1 << 20) + 1, -1, 3])
def test_a_frame_length_that_cannot_be(line, length):
    line.ask_and_hear()
    line.say(struct.pack(">i", length))
    with pytest.raises(FrameError, match=f"frame of {length} bytes"):
        line.serve()


def test_a_frame_with_bytes_left_over(line):
    _, correlation = line.ask_and_hear()
    line.say(framed(frame_of(_metadata(), correlation) + b"\0"))
    with pytest.raises(FrameError):
        line.serve()


def test_closed_in_the_middle_of_a_frame(line):
    request, correlation = line.ask_and_hear()
    line.say(_answered(correlation)[:-3])
    assert line.serve() == []
    line.peer.shutdown(socket.SHUT_RDWR)
    with pytest.raises(NetworkError, match="closed the connection"):
        line.serve()
    assert line.connection.close() == [request]
    assert line.connection.close() == []


def test_answers_that_came_before_the_connection_broke_are_handed_out(line):
    """A frame that fills its target to the byte makes the connection read on, and meet the end of the stream."""
    request, correlation = line.ask_and_hear(raw=True)
    body = struct.pack(">i", correlation) + b"x" * 100_000
    line.say(framed(body)[:50_000])
    assert line.serve() == []
    line.say(framed(body)[50_000:])
    line.peer.shutdown(socket.SHUT_RDWR)
    answers: list[Answer] = []
    while not answers:
        answers = line.serve()
    assert answers[0].request is request
    with pytest.raises(NetworkError, match="closed the connection"):
        line.serve()
    assert line.connection.close() == []


def test_a_good_answer_before_a_bad_one_counts(line):
    (first, one), (second, two) = line.ask_and_hear(), line.ask_and_hear()
    line.say(_answered(one) + _answered(two + 5))
    (answer,) = line.serve()
    assert answer.request is first
    assert line.connection.has_more
    with pytest.raises(FrameError):
        line.connection.on_ready(0.0)
    assert line.connection.close() == [second]


def test_an_unknown_error_code_costs_one_request_and_not_the_connection(line):
    (first, one), (second, two) = line.ask_and_hear(), line.ask_and_hear()
    frame = bytearray(frame_of(metadata_response(METADATA_VERSION, NODES, {"t": {}}, codes={"t": 29}), one))
    at = bytes(frame).index(b"\x00\x1d\x02t")
    frame[at : at + 2] = struct.pack(">h", 31_000)
    line.say(framed(bytes(frame)) + _answered(two))
    failed, answered = line.serve()
    assert (failed.request, answered.request) == (first, second)
    assert isinstance(failed.response, UnknownBrokerCode)
    assert answered.response == _metadata()


# --- time ------------------------------------------------------------------------------------------------------------


def test_the_oldest_request_sets_the_timer(line):
    line.ask_and_hear(5.0)
    line.ask_and_hear(6.0)
    assert line.connection.next_timer(10.0) == pytest.approx(25.0)
    line.connection.tick(34.9)
    with pytest.raises(OperationTimeout, match="did not answer METADATA"):
        line.connection.tick(35.0)


def test_a_request_may_have_a_time_of_its_own(line):
    line.ask_and_hear(0.0, timeout=2.0)
    with pytest.raises(OperationTimeout):
        line.connection.tick(2.0)


@pytest.mark.parametrize(("given", "seen"), [(None, b"me"), ("other", b"other"), ("", b"")])
def test_a_request_may_be_somebody_elses(line, given, seen):
    line.ask(client_id=given)
    frame = read_frame(line.peer)
    assert frame is not None
    length = int.from_bytes(frame[8:10], "big")
    assert frame[10 : 10 + length] == seen


def test_silence_is_kept_as_long_as_the_broker_asked(line):
    line.connection.muted_until = 8.0
    assert not line.connection.may_send(7.9)
    assert line.connection.next_timer(5.0) == pytest.approx(3.0)
    assert line.connection.may_send(8.0)
    assert line.connection.next_timer(8.0) == NEVER


# --- logging in ------------------------------------------------------------------------------------------------------


def _sasl(line: Line, now: float, *, lifetime_ms: int = 0) -> None:
    """The broker's half of a PLAIN login that it likes."""
    api, version, correlation, entity = line.heard()
    assert (api, version, entity.mechanism) == (ApiKey.SASL_HANDSHAKE, 1, "PLAIN")
    parts = response_parts(api, version)
    line.reply(make(parts.SaslHandshakeResponse, mechanisms=("PLAIN",)), correlation)
    line.serve(now)
    api, version, correlation, entity = line.heard()
    assert (api, entity.auth_bytes) == (ApiKey.SASL_AUTHENTICATE, b"\0user\0pencil")
    line.reply(_authenticated(version, lifetime_ms=lifetime_ms), correlation)
    line.serve(now)


def _authenticated(version: int, *, lifetime_ms: int = 0, code: int = 0, text: str | None = None) -> Any:
    parts = response_parts(ApiKey.SASL_AUTHENTICATE, version)
    return make(
        parts.SaslAuthenticateResponse,
        error_code=code,
        error_message=text,
        auth_bytes=b"",
        session_lifetime=timedelta(milliseconds=lifetime_ms),
    )


def test_a_login_for_ever(lines):
    line = Line(PlainLogin())
    lines.append(line)
    line.introduced()
    assert line.connection.state is ConnectionState.AUTHENTICATING
    _sasl(line, 1.0)
    assert line.connection.state is ConnectionState.READY
    assert line.connection.next_timer(1.0) == NEVER


def test_a_login_is_renewed_between_requests(lines):
    line = Line(PlainLogin())
    lines.append(line)
    line.introduced()
    _sasl(line, 0.0, lifetime_ms=10_000)
    assert line.connection.next_timer(0.0) == pytest.approx(9.0)
    _, correlation = line.ask_and_hear(8.0)
    assert not line.connection.may_send(9.0)
    line.connection.tick(9.0)
    assert line.connection.state is ConnectionState.READY, "not while an answer is awaited"
    line.say(_answered(correlation))
    (answer,) = line.serve(9.1)
    assert answer.response == _metadata()
    line.connection.tick(9.2)
    assert line.connection.state is ConnectionState.RENEWING
    assert not line.connection.may_send(9.2)
    assert line.connection.next_timer(9.2) > 1.0, "waiting for the broker must not spin"
    _sasl(line, 9.3, lifetime_ms=10_000)
    assert line.connection.state is ConnectionState.READY
    assert line.connection.may_send(9.3)
    assert line.connection.next_timer(9.3) == pytest.approx(9.0)


def test_a_renewal_that_takes_too_long_ends_the_connection(lines):
    line = Line(PlainLogin())
    lines.append(line)
    line.introduced()
    _sasl(line, 0.0, lifetime_ms=10_000)
    line.connection.tick(9.5)
    with pytest.raises(NetworkError, match="timed out while renewing"):
        line.connection.tick(39.5)


def test_a_token_that_is_late_is_waited_for(lines):
    line = Line(PlainLogin(late=2))
    lines.append(line)
    line.introduced()
    line.connection.tick(0.1)
    assert line.connection.state is ConnectionState.AUTHENTICATING
    line.connection.tick(0.2)
    _sasl(line, 0.3)
    assert line.connection.state is ConnectionState.READY


def test_a_refused_password(lines):
    line = Line(PlainLogin())
    lines.append(line)
    line.introduced()
    _, _, correlation, _ = line.heard()
    line.reply(make(response_parts(ApiKey.SASL_HANDSHAKE, 1).SaslHandshakeResponse, mechanisms=()), correlation)
    line.serve()
    _, version, correlation, _ = line.heard()
    line.reply(_authenticated(version, code=58, text="bad\x07 credentials"), correlation)
    with pytest.raises(SaslError, match="refused the PLAIN login: bad  credentials") as refused:
        line.serve()
    assert "pencil" not in str(refused.value)


@pytest.mark.parametrize(
    ("code", "words"),
    [(33, "it offers SCRAM-SHA-256, GSSAPI"), (34, "does not use SASL"), (-1, "with error -1")],
)
def test_a_refused_mechanism(lines, code, words):
    line = Line(PlainLogin())
    lines.append(line)
    line.introduced()
    _, _, correlation, _ = line.heard()
    parts = response_parts(ApiKey.SASL_HANDSHAKE, 1)
    response = make(parts.SaslHandshakeResponse, error_code=code, mechanisms=("SCRAM-SHA-256", "GSSAPI"))
    line.reply(response, correlation)
    with pytest.raises(SaslError, match=words):
        line.serve()
