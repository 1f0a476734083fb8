"""All sockets of a network thread: which connection gets a request, when, and how it fails with its broker.

Real sockets, brokers with a script, and a clock that only the test moves.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import Any

import pytest

from multilane.client.net.connection import ConnectionState
from multilane.client.net.delegate import ConnectionSetup, NetworkDelegate
from multilane.client.net.login import Login
from multilane.client.net.requests import CONTROL, Channel, UnsentRequest
from multilane.client.net.resolver import Resolver
from multilane.client.net.wakeup import Wakeup
from multilane.clock import ManualClock, SystemClock
from multilane.config.connection import parse_connection
from multilane.config.security import PasswordLogin
from multilane.errors import (
    ClientClosed,
    FrameError,
    MultilaneError,
    NetworkError,
    OperationTimeout,
    SaslError,
    UnsupportedVersion,
)
from multilane.metrics.observer import Counts
from multilane.secret import Secret
from multilane.types import Node, NodeId
from multilane.wire.compose import metadata_request
from multilane.wire.fetch import walk_fetch_response
from multilane.wire.messages import ApiKey
from response_builder import (
    api_versions_response,
    frame_of,
    framed,
    make,
    metadata_response,
    response_parts,
)
from scripted_broker import Asked, ScriptedBroker

FIRST = NodeId(-1)
OTHER_CHANNEL = Channel("fetch-1")


def _tell_metadata(asked: Asked) -> None:
    asked.answer(metadata_response(asked.version, [], {}))


def _no_pool() -> Executor:
    raise AssertionError("addresses in numbers need no lookup")


class Result:
    """What became of one request."""

    def __init__(self) -> None:
        self.responses: list[Any] = []
        self.errors: list[MultilaneError] = []

    @property
    def done(self) -> bool:
        assert len(self.responses) + len(self.errors) <= 1, "completed twice"
        return bool(self.responses or self.errors)


class Office:
    def __init__(self, *ports: int, login: Login | None = None, **properties: object) -> None:
        servers = ",".join(f"127.0.0.1:{p}" for p in ports)
        config = parse_connection({"bootstrap.servers": servers, **properties})
        self.clock = ManualClock(100.0)
        self.counts = Counts()
        self.wakeup = Wakeup()
        setup = ConnectionSetup(Resolver(_no_pool, self.wakeup.set, self.clock.monotonic), None, login)
        self.delegate = NetworkDelegate(config, setup, self.wakeup, self.counts)
        self.delegate.directory._choose = max

    def ask(self, node: NodeId | None = None, **more: Any) -> Result:
        result = Result()
        request = UnsentRequest(
            ApiKey.METADATA,
            lambda version: metadata_request(version, ["t"], create=False),
            lambda response, _: result.responses.append(response),
            lambda error, _: result.errors.append(error),
            node=node,
            **more,
        )
        self.delegate.add(request, self.clock.monotonic())
        return result

    def turn(self, times: int = 1) -> None:
        for _ in range(times):
            self.delegate.poll(0.0, self.clock.monotonic)

    def until(self, condition: Callable[[], object]) -> None:
        """Let the sockets work until it is so. Real time is only the limit of our patience."""
        patience = SystemClock()
        deadline = patience.monotonic() + 10.0
        while not condition():
            assert patience.monotonic() < deadline, "it did not happen"
            self.delegate.poll(0.02, self.clock.monotonic)

    def close(self) -> None:
        self.delegate.close()
        self.wakeup.close()


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with ScriptedBroker({ApiKey.METADATA: _tell_metadata}) as made:
        yield made


@pytest.fixture
def offices() -> Iterator[Callable[..., Office]]:
    made: list[Office] = []

    def make(*ports: int, **properties: Any) -> Office:
        made.append(Office(*ports, **properties))
        return made[-1]

    yield make
    for office in made:
        office.close()


def _closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_a_request_finds_a_broker_and_its_answer_the_asker(offices, broker):
    office = offices(broker.port)
    result = [office.ask(), office.ask(FIRST)]
    office.until(lambda: all(t.done for t in result))
    assert [len(t.responses) for t in result] == [1, 1]
    assert broker.connections == 1
    assert office.delegate.connection_count == 1


def test_a_channel_has_a_connection_of_its_own_and_goes_with_its_consumer(offices, broker):
    office = offices(broker.port)
    result = [office.ask(), office.ask(FIRST, channel=OTHER_CHANNEL)]
    office.until(lambda: all(t.done for t in result))
    assert office.delegate.connection_count == 2
    waiting = office.ask(NodeId(77), channel=OTHER_CHANNEL)
    office.delegate.close_owner(OTHER_CHANNEL.owner)
    assert office.delegate.connection_count == 1
    office.turn(3)
    assert not waiting.done


def test_a_closed_port_is_left_alone_for_a_while(offices):
    office = offices(_closed_port(), **{"reconnect.backoff.ms": 50})
    first = office.ask(FIRST)
    office.until(lambda: first.done)
    assert isinstance(first.errors[0], NetworkError)
    assert office.counts.total("connection.failed") == 1
    for _ in range(20):  # whoever asks again meets the back-off, not the port
        again = office.ask(FIRST)
        office.turn()
        assert again.done
        assert "is unreachable (waiting before the next attempt): cannot connect to broker" in str(again.errors[0])
    assert office.counts.total("connection.failed") == 1
    office.clock.advance(0.1)
    again = office.ask(FIRST)
    office.until(lambda: again.done)
    assert office.counts.total("connection.failed") == 2


def test_a_request_for_anyone_goes_to_the_next_broker(offices, broker):
    office = offices(_closed_port(), broker.port)
    result = office.ask()
    office.until(lambda: result.done)
    assert result.responses
    assert office.counts.total("connection.failed") == 1


def test_a_request_that_nobody_can_be_sent_expires_with_the_reason(offices):
    office = offices(_closed_port(), **{"request.timeout.ms": 5_000, "reconnect.backoff.max.ms": 60_000})
    result = office.ask()
    office.until(lambda: office.counts.total("connection.failed") >= 1)
    assert not result.done
    office.clock.advance(5.0)
    office.turn()
    assert isinstance(result.errors[0], OperationTimeout)


def test_a_silent_broker_costs_the_connection_and_every_request_on_it(offices):
    with ScriptedBroker() as silent:
        office = offices(silent.port, **{"request.timeout.ms": 5_000})
        result = [office.ask(FIRST), office.ask(FIRST)]
        office.until(lambda: len(silent.asked(ApiKey.METADATA)) == 2)
        office.clock.advance(4.9)
        office.turn(2)
        assert not any(t.done for t in result)
        office.clock.advance(0.1)
        office.turn()
        assert all(isinstance(t.errors[0], OperationTimeout) for t in result)
        assert office.delegate.connection_count == 0


def test_a_throttled_connection_is_silent_until_the_time_is_over(offices):
    def throttle(asked: Asked) -> None:
        asked.answer(metadata_response(asked.version, [], {}, throttle_ms=500))

    with ScriptedBroker({ApiKey.METADATA: throttle}) as broker:
        office = offices(broker.port)
        first = office.ask(FIRST)
        office.until(lambda: first.done)
        second = office.ask(FIRST)
        connection = office.delegate._connections[FIRST, CONTROL]
        for seconds in (0.0, 0.49):
            office.clock.advance(seconds)
            office.turn(3)
            assert (connection.in_flight, second.done) == (0, False)
        office.clock.advance(0.02)
        office.until(lambda: second.done)
        assert second.responses
        assert office.counts.total("throttle.seconds") == pytest.approx(1.0)


def test_a_hostile_throttle_is_capped(offices):
    def throttle(asked: Asked) -> None:
        asked.answer(metadata_response(asked.version, [], {}, throttle_ms=2**31 - 1))

    with ScriptedBroker({ApiKey.METADATA: throttle}) as broker:
        office = offices(broker.port, **{"request.timeout.ms": 100_000})
        first = office.ask(FIRST)
        office.until(lambda: first.done)
        second = office.ask(FIRST)
        office.clock.advance(59.9)
        office.turn(3)
        assert (office.delegate._connections[FIRST, CONTROL].in_flight, second.done) == (0, False)
        office.clock.advance(0.1)
        office.until(lambda: second.done)
        assert second.responses


def test_a_lost_connection_fails_what_it_carried_and_what_waited_for_it(offices):
    with ScriptedBroker() as broker:
        office = offices(broker.port)
        carried = office.ask(FIRST)
        office.until(lambda: broker.asked(ApiKey.METADATA))
        office.delegate._connections[FIRST, CONTROL].muted_until = 1e9
        waiting, other = office.ask(FIRST), office.ask(NodeId(-1), channel=OTHER_CHANNEL)
        office.turn()
        assert not waiting.done
        broker.asked(ApiKey.METADATA)[0].hang_up()
        office.until(lambda: waiting.done)
        assert isinstance(carried.errors[0], NetworkError)
        assert isinstance(waiting.errors[0], NetworkError)
        assert not other.done, "another channel's connection has its own fate"


def test_answers_in_flight_when_the_broker_hangs_up_are_not_lost(offices):
    def answer_and_go(asked: Asked) -> None:
        asked.answer(metadata_response(asked.version, [], {"t" * 200: {n: (1, 1) for n in range(5_000)}}))
        asked.hang_up()

    with ScriptedBroker({ApiKey.METADATA: answer_and_go}) as broker:
        office = offices(broker.port)
        result = [office.ask(FIRST), office.ask(FIRST)]
        office.until(lambda: all(t.done for t in result))
        assert [len(t.responses) for t in result] == [1, 0]
        assert isinstance(result[1].errors[0], NetworkError)


def test_a_raw_frame_that_is_refused_fails_once_and_costs_the_connection(offices):
    def nonsense(asked: Asked) -> None:
        asked.send(framed(struct.pack(">i", asked.correlation_id) + b"\xff" * 40))

    with ScriptedBroker({ApiKey.METADATA: nonsense}) as broker:
        office = offices(broker.port)
        errors: list[MultilaneError] = []
        office.delegate.add(
            UnsentRequest(
                ApiKey.METADATA,
                lambda version: metadata_request(version, [], create=False),
                lambda raw, _: walk_fetch_response(raw.frame, 17, raw.correlation_id),
                lambda error, _: errors.append(error),
                node=FIRST,
                raw=True,
            ),
            100.0,
        )
        office.until(lambda: errors)
        office.turn(3)
        assert [type(e) for e in errors] == [FrameError]
        assert office.delegate.connection_count == 0
        assert office.counts.total("frame.refused") == 1


def test_no_common_version_fails_the_request_and_keeps_the_connection(offices, broker):
    broker.answers[ApiKey.API_VERSIONS] = lambda a: a.answer(api_versions_response(a.version, {18: (0, 4), 3: (0, 8)}))
    office = offices(broker.port)
    old, fine = office.ask(FIRST, at_least=9), office.ask(FIRST)
    office.until(lambda: old.done and fine.done)
    assert isinstance(old.errors[0], UnsupportedVersion)
    assert fine.responses
    assert office.delegate.connection_count == 1


def test_an_idle_connection_is_closed(offices, broker):
    office = offices(broker.port, **{"connections.max.idle.ms": 60_000})
    result = office.ask()
    office.until(lambda: result.done)
    office.clock.advance(59.9)
    office.turn(2)
    assert office.delegate.connection_count == 1
    office.clock.advance(0.1)
    office.turn(2)
    assert office.delegate.connection_count == 0


def test_bootstrap_connections_go_once_the_cluster_is_known(offices, broker):
    office = offices(broker.port)
    result = office.ask()
    office.until(lambda: result.done)
    node = Node(NodeId(5), "127.0.0.1", broker.port)
    office.delegate.on_nodes({node.id: node}, 100.0)
    result = office.ask()
    office.until(lambda: result.done)
    assert list(office.delegate._connections) == [(5, CONTROL)]


def test_a_broker_that_moved_is_found_at_its_new_place(offices, broker):
    office = offices(broker.port)
    node = Node(NodeId(5), "127.0.0.1", broker.port)
    office.delegate.on_nodes({node.id: node}, 100.0)
    result = office.ask(node.id)
    office.until(lambda: result.done)
    with ScriptedBroker({ApiKey.METADATA: _tell_metadata}) as elsewhere:
        office.delegate.on_nodes({node.id: Node(NodeId(5), "127.0.0.1", elsewhere.port)}, 100.0)
        assert office.delegate.connection_count == 0
        office.clock.advance(1.0)
        result = office.ask(node.id)
        office.until(lambda: result.done)
        assert result.responses
        assert elsewhere.connections == 1


def test_whoever_waits_for_a_broker_that_moved_learns_at_what_time(offices):
    asked, result = threading.Event(), []
    with ScriptedBroker({ApiKey.METADATA: lambda _: asked.set()}) as silent:
        office = offices(silent.port)
        node = Node(NodeId(5), "127.0.0.1", silent.port)
        office.delegate.on_nodes({node.id: node}, 100.0)
        request = UnsentRequest(
            ApiKey.METADATA,
            lambda version: metadata_request(version, ["t"], create=False),
            lambda *_: None,
            lambda error, now: result.append((type(error), now)),
            node=node.id,
        )
        office.delegate.add(request, 100.0)
        office.until(asked.is_set)
        office.delegate.on_nodes({node.id: Node(NodeId(5), "127.0.0.1", 1)}, 130.0)
    assert result == [(NetworkError, 130.0)]


def test_a_broker_that_is_not_in_the_cluster_cannot_be_asked(offices, broker):
    office = offices(broker.port)
    result = office.ask(NodeId(42))
    office.turn()
    assert "is not in the cluster" in str(result.errors[0])


def test_a_frame_arrives_whole_however_it_is_portioned(offices):
    def in_portions(asked: Asked) -> None:
        data = framed(frame_of(metadata_response(asked.version, [], {"t": {0: (1, 1)}}), asked.correlation_id))
        for byte in data:
            asked.send(bytes([byte]))

    with ScriptedBroker({ApiKey.METADATA: in_portions}) as broker:
        office = offices(broker.port)
        result = [office.ask(FIRST) for _ in range(3)]
        office.until(lambda: all(t.done for t in result))
        assert all(t.responses[0].topics[0].name == "t" for t in result)


def test_abort_tells_everyone_even_past_a_broken_callback(offices):
    def broken(_error: MultilaneError, _now: float) -> None:
        raise RuntimeError("a bug in a callback")

    with ScriptedBroker() as broker:
        office = offices(broker.port)
        carried = office.ask(FIRST)
        office.until(lambda: broker.asked(ApiKey.METADATA))
        office.delegate.add(UnsentRequest(ApiKey.METADATA, lambda _: None, lambda *_: None, broken), 100.0)
        waiting = office.ask(NodeId(9))
        office.delegate.abort(ClientClosed("bye"), 101.0)
        assert isinstance(carried.errors[0], ClientClosed)
        assert isinstance(waiting.errors[0], ClientClosed)


def test_a_ready_connection_forgives_its_broker(offices, broker):
    office = offices(broker.port)
    office.delegate.directory.failed(FIRST, NetworkError("before"), 0.0)
    result = office.ask(FIRST)
    office.until(lambda: result.done)
    assert office.delegate._connections[FIRST, CONTROL].state is ConnectionState.READY
    office.delegate.directory.failed(FIRST, NetworkError("once"), 100.0)
    assert office.delegate.directory.wait(FIRST, 100.0) < 0.07, "counted from one again"


def test_a_refused_login_is_reported_to_all_who_ask_and_does_not_become_a_storm(offices):
    def agree(asked: Asked) -> None:
        parts = response_parts(asked.api, asked.version)
        asked.answer(make(parts.SaslHandshakeResponse, mechanisms=("PLAIN",)))

    def refuse(asked: Asked) -> None:
        parts = response_parts(asked.api, asked.version)
        asked.answer(make(parts.SaslAuthenticateResponse, error_code=58, error_message="no", auth_bytes=b""))

    scripted = {ApiKey.SASL_HANDSHAKE: agree, ApiKey.SASL_AUTHENTICATE: refuse}
    login = Login(PasswordLogin("PLAIN", "user", Secret("pencil")), _no_pool, lambda: 0.0, lambda: None)
    with ScriptedBroker(scripted) as broker:
        office = offices(broker.port, login=login, **{"reconnect.backoff.ms": 1})
        result = [office.ask(), office.ask(FIRST)]
        office.until(lambda: all(t.done for t in result))
        assert all(isinstance(t.errors[0], SaslError) for t in result)
        for _ in range(20):
            office.ask(FIRST)
            office.ask()
            office.clock.advance(0.05)
            office.turn(2)
            assert office.delegate.connection_count == 0
        assert broker.connections == 1
        office.clock.advance(3.0)
        again = office.ask(FIRST)
        office.until(lambda: again.done)
        assert broker.connections == 2
