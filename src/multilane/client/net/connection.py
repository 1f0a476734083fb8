"""One connection to one broker, from dialling to the last response.

Thread: network.

`TRANSITIONS` lists the states and the moves between them. Requests are sent in READY only. Responses arrive in request
order, and each correlation id is checked before the body is parsed. RENEWING repeats the SASL login on the live
connection (KIP-368). It starts only when no request is in flight, so that it never mixes with other traffic.
"""

from __future__ import annotations

import enum
import random
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from multilane.client.net.handshake import Handshake, Reply, authenticate, introduce
from multilane.client.net.requests import NEVER, Channel, RawResponse, UnsentRequest
from multilane.client.net.transport import WRITE, Transport
from multilane.errors import (
    FrameError,
    MultilaneError,
    NetworkError,
    OperationTimeout,
    SaslError,
    UnknownBrokerCode,
    UnsendableRequest,
    WrongListener,
)
from multilane.wire.framing import Frame, FrameAssembler
from multilane.wire.messages import decode_response, encode_request, request_type, response_type
from multilane.wire.versions import Versions

if TYPE_CHECKING:
    from multilane.client.net.login import Login
    from multilane.types import Node

# All connections share a turn of the loop: none receives more than this in one turn.
_RECEIVE_PER_TURN: Final = 32 << 20
_RENEW_AT: Final = (0.85, 0.95)


class ConnectionState(enum.Enum):
    CONNECTING = "connecting"
    INTRODUCING = "introducing"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    RENEWING = "renewing"
    CLOSED = "closed"


TRANSITIONS: Final[Mapping[ConnectionState, frozenset[ConnectionState]]] = {
    ConnectionState.CONNECTING: frozenset({ConnectionState.INTRODUCING, ConnectionState.CLOSED}),
    ConnectionState.INTRODUCING: frozenset(
        {ConnectionState.AUTHENTICATING, ConnectionState.READY, ConnectionState.CLOSED}
    ),
    ConnectionState.AUTHENTICATING: frozenset({ConnectionState.READY, ConnectionState.CLOSED}),
    ConnectionState.READY: frozenset({ConnectionState.RENEWING, ConnectionState.CLOSED}),
    ConnectionState.RENEWING: frozenset({ConnectionState.READY, ConnectionState.CLOSED}),
    ConnectionState.CLOSED: frozenset(),
}
_LOGGING_IN: Final = frozenset({ConnectionState.AUTHENTICATING, ConnectionState.RENEWING})


@dataclass(frozen=True, slots=True)
class InFlight:
    request: UnsentRequest
    correlation_id: int
    version: int
    kind: type[Any]
    expires_at: float


@dataclass(frozen=True, slots=True)
class Answer:
    """A request and its result: the decoded response, the raw frame if requested, or an error."""

    request: UnsentRequest
    response: Any


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    connect_timeout: float
    request_timeout: float
    frame_cap: int
    client_id: str
    allocate: Callable[[int], Frame]
    draw: Callable[[], float] = random.random


class Connection:
    def __init__(
        self,
        node: Node,
        channel: Channel,
        transport: Transport,
        login: Login | None,
        limits: ConnectionLimits,
        now: float,
    ) -> None:
        self.node = node
        self.channel = channel
        self.transport = transport
        self.state = ConnectionState.CONNECTING
        self.versions = Versions()
        self.muted_until = 0.0  # the broker throttles this client
        self.last_used = now
        self.has_more = False  # there may be bytes that the selector does not report
        self._login = login
        self._limits = limits
        self._assembler = FrameAssembler(limits.frame_cap, str(node), limits.allocate)
        self._outbox: deque[memoryview] = deque()
        self._in_flight: deque[InFlight] = deque()
        self._handshake: Handshake | None = None
        self._handshake_correlation = 0
        self._correlation = 0
        self._deadline = now + limits.connect_timeout
        self._renew_at = NEVER
        self._failure: MultilaneError | None = None  # raised after the responses received before it

    # --- called by the delegate --------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def wants(self) -> int:
        if self.state is ConnectionState.CONNECTING:
            return self.transport.wants
        return self.transport.wants | (WRITE if self._outbox else 0)

    def may_send(self, now: float) -> bool:
        return self.state is ConnectionState.READY and now >= self.muted_until and now < self._renew_at

    def next_timer(self, now: float) -> float:
        """Seconds until the next deadline or timer of this connection."""
        times = [self._deadline, self._renew_at if not self._in_flight else NEVER]
        if self._in_flight:
            times.append(self._in_flight[0].expires_at)
        if self.muted_until > now:
            times.append(self.muted_until)
        return max(0.0, min(times) - now)

    def send(self, request: UnsentRequest, now: float) -> None:
        version = self.versions.pick(request.api, at_least=request.at_least, at_most=request.at_most)
        client_id = self._limits.client_id if request.client_id is None else request.client_id
        data = _encoded(request, version, self._correlation + 1, client_id)
        self._correlation += 1
        kind = response_type(request_type(request.api, version))
        timeout = self._limits.request_timeout if request.timeout is None else request.timeout
        self._in_flight.append(InFlight(request, self._correlation, version, kind, now + timeout))
        self.last_used = now
        self._outbox.append(memoryview(data))
        self._flush()

    def on_ready(self, now: float) -> list[Answer]:
        """The socket is ready: do everything that does not block."""
        if self.state is ConnectionState.CONNECTING:
            if not self.transport.establish():
                return []
            self._to(ConnectionState.INTRODUCING)
            self._deadline = now + self._limits.request_timeout
            self._start(introduce(), now)
        self._flush()
        return self._receive(now)

    def tick(self, now: float) -> None:
        """Check the timers: deadlines, a login that waits for its token, a login to renew."""
        if now >= self._deadline:
            raise NetworkError(f"broker {self.node}: timed out while {self.state.value}")
        if self._in_flight and now >= self._in_flight[0].expires_at:
            raise OperationTimeout(f"broker {self.node} did not answer {self._in_flight[0].request.api.name} in time")
        if self.state in _LOGGING_IN and self._handshake is None:
            self._log_in(now)
        elif self.state is ConnectionState.READY and now >= self._renew_at and not self._in_flight:
            self._to(ConnectionState.RENEWING)
            self._renew_at = NEVER
            self._deadline = now + self._limits.request_timeout
            self._log_in(now)

    def close(self) -> list[UnsentRequest]:
        """Close the connection; returns the requests that were in flight."""
        if self.state is ConnectionState.CLOSED:
            return []
        self._to(ConnectionState.CLOSED)
        self.transport.close()
        unanswered = [f.request for f in self._in_flight]
        self._in_flight.clear()
        return unanswered

    # --- handshakes --------------------------------------------------------------------------------------------------

    def _to(self, state: ConnectionState) -> None:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"connection to {self.node}: no move from {self.state.value} to {state.value}")
        self.state = state

    def _log_in(self, now: float) -> None:
        try:
            conversation = None if self._login is None else self._login.begin()
        except SaslError as error:
            raise self._named(error) from None
        if self._login is not None and conversation is not None:
            self._start(authenticate(self._login.mechanism, conversation, self.versions), now)

    def _start(self, handshake: Handshake, now: float) -> None:
        self._handshake = handshake
        self._step(handshake, None, now)

    def _step(self, handshake: Handshake, reply: Reply | None, now: float) -> None:
        try:
            entity = next(handshake) if reply is None else handshake.send(reply)
        except StopIteration as agreed:
            self._handshake = None
            self._agreed(agreed.value, now)
            return
        except SaslError as error:
            raise self._named(error) from None
        self._correlation += 1
        self._handshake_correlation = self._correlation
        self._write(entity, self._correlation)

    def _named(self, error: SaslError) -> SaslError:
        """The same error with the broker's address, which a login does not know."""
        return SaslError(f"SASL with {self.node.host}:{self.node.port} failed: {error}")

    def _agreed(self, result: Any, now: float) -> None:
        if self.state is ConnectionState.INTRODUCING:
            self.versions = result
            if self._login is not None:
                self._to(ConnectionState.AUTHENTICATING)
                self._log_in(now)
                return
        elif result is not None:  # how long the login is valid
            low, high = _RENEW_AT
            self._renew_at = now + result * (low + (high - low) * self._limits.draw())
        else:
            self._renew_at = NEVER
        self._to(ConnectionState.READY)
        self._deadline = NEVER
        self.last_used = now

    # --- bytes -------------------------------------------------------------------------------------------------------

    def _write(self, entity: Any, correlation_id: int) -> None:
        self._outbox.append(memoryview(encode_request(entity, correlation_id, self._limits.client_id)))
        self._flush()

    def _flush(self) -> None:
        while self._outbox:
            data = self._outbox[0]
            sent = self.transport.send(data)
            if sent < len(data):
                self._outbox[0] = data[sent:]
                return
            self._outbox.popleft()

    def _receive(self, now: float) -> list[Answer]:
        """Responses received before the connection broke are valid: they are returned first, then the failure is
        raised."""
        if self._failure is not None:
            raise self._failure
        answers: list[Answer] = []
        self.has_more = False
        try:
            self._receive_into(answers, now)
        except MultilaneError as error:
            if isinstance(error, FrameError) and self.state is ConnectionState.INTRODUCING:
                raise WrongListener(str(error)) from None  # the peer does not speak Kafka at all
            if not answers:
                raise
            self._failure = error
            self.has_more = True
        return answers

    def _receive_into(self, answers: list[Answer], now: float) -> None:
        received = 0
        while self.state is not ConnectionState.CLOSED:
            target = self._assembler.target()
            self.transport.expect(self._assembler.missing)
            count = self.transport.receive_into(target)
            if count is None:
                break
            received += count
            for frame in self._assembler.advance(count):
                self._take(frame, answers, now)
            if self._expects_nothing or (count < len(target) and self.transport.drained_by_short_read):
                break
            if received >= _RECEIVE_PER_TURN:
                self.has_more = True
                break
        self.transport.expect(self._assembler.missing)

    @property
    def _expects_nothing(self) -> bool:
        return self._assembler.is_empty and not self._in_flight and self._handshake is None

    def _take(self, frame: Frame, answers: list[Answer], now: float) -> None:
        if self._handshake is not None:
            self._step(self._handshake, Reply(frame, self._handshake_correlation), now)
            return
        if not self._in_flight:
            raise NetworkError(f"broker {self.node} sent a response that was not requested")
        flight = self._in_flight[0]
        if flight.request.raw:
            response: Any = RawResponse(frame, flight.version, flight.correlation_id, self.node.id, str(self.node))
        else:
            response = _decoded(flight, frame)
        self._in_flight.popleft()
        self.last_used = now
        answers.append(Answer(flight.request, response))


def _encoded(request: UnsentRequest, version: int, correlation_id: int, client_id: str) -> bytes:
    """A request that cannot be encoded fails alone; the connection stays usable."""
    try:
        return encode_request(request.build(version), correlation_id, client_id)
    except Exception as error:
        raise UnsendableRequest(f"{request.api.name} cannot be encoded: {type(error).__name__}: {error}") from error


def _decoded(flight: InFlight, frame: Frame) -> Any:
    """An unknown error code fails this request alone; the frame and the connection are intact."""
    try:
        return decode_response(flight.kind, frame, flight.correlation_id)
    except UnknownBrokerCode as error:
        return error
