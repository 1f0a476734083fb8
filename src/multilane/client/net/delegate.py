"""Sends the managers' requests and delivers the responses, over all sockets of one network thread.

Thread: network.

Owns the connections, one per broker and channel, opened on demand. Every request waits here until its connection may
send. When a connection is lost, its requests fail, and so do those that waited for it. Never retries: the managers
decide whether and where.
"""

from __future__ import annotations

import contextlib
import logging
import selectors
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from multilane.client.net.connection import Answer, Connection, ConnectionLimits, ConnectionState
from multilane.client.net.directory import Directory
from multilane.client.net.frames import FramePool
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import CONTROL, NEVER, Channel, RawResponse, UnsentRequest
from multilane.client.net.transport import open_transport
from multilane.errors import (
    MultilaneError,
    NetworkError,
    OperationTimeout,
    UnsendableRequest,
    UnsupportedVersion,
    WireError,
)
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.types import Node, NodeId

if TYPE_CHECKING:
    from multilane.client.net.login import Login
    from multilane.client.net.resolver import Resolver
    from multilane.client.net.wakeup import Wakeup
    from multilane.config.connection import ConnectionConfig

log = logger(__name__)

_LONGEST_THROTTLE: Final = 60.0

ConnectionId = tuple[NodeId, Channel]


@dataclass(frozen=True, slots=True)
class ConnectionSetup:
    """Everything needed to open a connection."""

    resolver: Resolver
    tls: ssl.SSLContext | None
    login: Login | None


class NetworkDelegate:
    def __init__(self, config: ConnectionConfig, setup: ConnectionSetup, wakeup: Wakeup, observer: Observer) -> None:
        self._config = config
        self._setup = setup
        self._wakeup = wakeup
        self._observer = observer
        backoff = RequestBackoff(config.reconnect_backoff, config.reconnect_backoff_max)
        self.directory = Directory(config.bootstrap_servers, backoff, rebootstrap=config.rebootstrap)
        self._selector = selectors.DefaultSelector()
        self._selector.register(wakeup.fileno(), selectors.EVENT_READ, None)
        self._connections: dict[ConnectionId, Connection] = {}
        self._watched: dict[ConnectionId, tuple[int, int]] = {}
        self._unsent: list[UnsentRequest] = []
        self.last_failure: MultilaneError | None = None  # why a broker was unreachable; None once one is reachable
        self._reported_failure = False
        self.memory = FramePool()
        self._limits = ConnectionLimits(
            config.connect_timeout,
            config.request_timeout,
            config.receive_max_bytes,
            config.client_id,
            self.memory.take,
        )

    def add(self, request: UnsentRequest, now: float) -> None:
        timeout = self._config.request_timeout if request.timeout is None else request.timeout
        request.expires_at = now + timeout
        self._unsent.append(request)

    def poll(self, timeout: float, now: Callable[[], float]) -> None:
        """One turn: send what can be sent, wait at most `timeout` for the sockets, receive."""
        self._reported_failure = False
        self._dispatch(now())
        # A manager that has just received a failure may want to send before `timeout`, which was computed earlier.
        ready = self._selector.select(0.0 if self._reported_failure else self._select_timeout(timeout, now()))
        at = now()
        woken = {key.data for key, _ in ready}
        if None in woken:
            self._wakeup.clear()
            woken.discard(None)
        for connection_id, connection in list(self._connections.items()):
            if connection_id in woken or connection.has_more:
                self._serve(connection, at)
            self._tick(connection, at)
        self.memory.trim(at)

    @property
    def connection_count(self) -> int:
        return len(self._connections)

    def close_owner(self, owner: str) -> None:
        """Close the connections of a closed consumer and drop the requests that waited for them."""
        self._unsent = [r for r in self._unsent if r.channel.owner != owner]
        for connection in [c for c in self._connections.values() if c.channel.owner == owner]:
            self._hang_up(connection)

    def close(self) -> None:
        for connection in list(self._connections.values()):
            self._hang_up(connection)
        self._unsent.clear()
        self._selector.close()

    def abort(self, error: MultilaneError, now: float) -> None:
        """The thread ends: every pending request fails with the reason."""
        waiting, self._unsent = self._unsent, []
        for connection in list(self._connections.values()):
            waiting += self._hang_up(connection)
        for request in waiting:
            with contextlib.suppress(Exception):  # one broken callback must not stop the others
                request.on_failure(error, now)

    def on_nodes(self, nodes: dict[NodeId, Node], now: float) -> None:
        """The cluster's brokers are known: close connections to brokers that left or moved."""
        for moved in self.directory.adopt(nodes):
            for connection in [c for c in self._connections.values() if c.node.id == moved]:
                error = NetworkError(f"broker {connection.node} left the cluster or changed its address")
                for request in self._hang_up(connection):
                    self._fail_request(request, error, now)

    def forget_cluster(self, now: float) -> None:
        """Return to the bootstrap addresses and close all connections to the old cluster."""
        self.directory.forget_cluster()
        error = NetworkError("the client dropped this connection to reconnect through bootstrap.servers")
        for connection in [c for c in self._connections.values() if not self.directory.is_bootstrap(c.node.id)]:
            for request in self._hang_up(connection):
                self._fail_request(request, error, now)

    # --- sending -----------------------------------------------------------------------------------------------------

    def _dispatch(self, now: float) -> None:
        pending, self._unsent = self._unsent, []
        for request in pending:
            if now >= request.expires_at:
                self._fail_request(request, self._unreachable(request), now)
                continue
            try:
                connection = self._connection_for(request, now)
            except NetworkError as error:
                self._fail_request(request, error, now)
                continue
            if connection is None or not connection.may_send(now):
                self._unsent.append(request)
                continue
            self._send(connection, request, now)

    def _unreachable(self, request: UnsentRequest) -> OperationTimeout:
        return OperationTimeout(f"{request.api.name} could not be sent to a broker in time{self._cause()}")

    def _cause(self) -> str:
        return "" if self.last_failure is None else f": {self.last_failure}"

    def _send(self, connection: Connection, request: UnsentRequest, now: float) -> None:
        try:
            connection.send(request, now)
        except (UnsupportedVersion, UnsendableRequest) as error:
            self._fail_request(request, error, now)
        except MultilaneError as error:
            self._drop(connection, error, now)
        self._watch(connection)

    def _fail_request(self, request: UnsentRequest, error: MultilaneError, now: float) -> None:
        self._reported_failure = True
        request.on_failure(error, now)

    def _connection_for(self, request: UnsentRequest, now: float) -> Connection | None:
        node = self._least_loaded(now) if request.node is None else request.node
        if node is None:
            return None
        connection = self._connections.get((node, request.channel))
        if connection is not None:
            return connection
        if self.directory.wait(node, now) > 0:
            if request.node is None:
                return None
            raise NetworkError(f"broker {node} is unreachable (waiting before the next attempt){self._cause()}")
        return self._open(node, request.channel, now)

    def _least_loaded(self, now: float) -> NodeId | None:
        """The broker of the least busy ready connection, else of one that is being opened, else one to dial."""
        control = [c for c in self._connections.values() if c.channel == CONTROL]
        usable = [c for c in control if not self.directory.is_bootstrap(c.node.id) or not self.directory.knows_cluster]
        ready = [c for c in usable if c.may_send(now)]
        if ready:
            return min(ready, key=lambda c: c.in_flight).node.id
        dialling = [c for c in usable if c.state is not ConnectionState.READY]
        return dialling[0].node.id if dialling else self.directory.any_node(now)

    def _open(self, node_id: NodeId, channel: Channel, now: float) -> Connection | None:
        node = self.directory.get(node_id)
        if node is None:
            raise NetworkError(f"broker {node_id} is not in the cluster")
        try:
            addresses = self._setup.resolver.addresses(node.host, node.port)
            if addresses is None:
                return None
            transport = open_transport(addresses, (node.host, node.port), self._setup.tls)
        except NetworkError as error:
            self._connection_failed(node, channel, error, now)
            return None
        connection = Connection(node, channel, transport, self._setup.login, self._limits, now)
        self._connections[node_id, channel] = connection
        self._watch(connection)
        return connection

    # --- receiving ---------------------------------------------------------------------------------------------------

    def _serve(self, connection: Connection, now: float) -> None:
        before = connection.state
        try:
            answers = connection.on_ready(now)
        except MultilaneError as error:
            self._drop(connection, error, now)
            return
        if before is not ConnectionState.READY and connection.state is ConnectionState.READY:
            self.directory.succeeded(connection.node.id)
            self.last_failure = None
            name = "login.renewed" if before is ConnectionState.RENEWING else "connection.opened"
            self._observer.count(name, broker=str(connection.node.id))
        for answer in answers:
            self._deliver(connection, answer, now)
        self._watch(connection)

    def _deliver(self, connection: Connection, answer: Answer, now: float) -> None:
        response = answer.response
        if isinstance(response, MultilaneError):
            answer.request.on_failure(response, now)
            return
        if isinstance(response, RawResponse):
            response.throttled = lambda ms: self._mute(connection, ms / 1_000, now)
        else:
            self._mute(connection, _throttle(response), now)
        try:
            answer.request.on_response(response, now)
        except WireError as error:
            log.warning("broker %s: %s", connection.node, error)
            self._observer.count("frame.refused", broker=str(connection.node.id))
            answer.request.on_failure(error, now)
            self._drop(connection, error, now)

    def _mute(self, connection: Connection, seconds: float, now: float) -> None:
        if seconds > 0:
            self._observer.count("throttle.seconds", seconds, broker=str(connection.node.id))
            connection.muted_until = now + min(seconds, _LONGEST_THROTTLE)

    def _tick(self, connection: Connection, now: float) -> None:
        if connection.state is ConnectionState.CLOSED:
            return
        try:
            connection.tick(now)
        except MultilaneError as error:
            self._drop(connection, error, now)
            return
        idle = self._config.connections_max_idle
        if (
            connection.state is ConnectionState.READY
            and not connection.in_flight
            and self._is_surplus(connection, idle, now)
        ):
            self._hang_up(connection)
        else:
            self._watch(connection)

    def _is_surplus(self, connection: Connection, idle: float | None, now: float) -> bool:
        if self.directory.is_bootstrap(connection.node.id) and self.directory.knows_cluster:
            return True
        return idle is not None and now - connection.last_used >= idle

    # --- losing ------------------------------------------------------------------------------------------------------

    def _drop(self, connection: Connection, error: MultilaneError, now: float) -> None:
        """The connection failed: fail its requests and those that waited for it."""
        unanswered = self._hang_up(connection)
        self._connection_failed(connection.node, connection.channel, error, now)
        for request in unanswered:
            self._fail_request(request, error, now)

    def _connection_failed(self, node: Node, channel: Channel, error: MultilaneError, now: float) -> None:
        first = not self.directory.is_failing(node.id)  # warn once; repeated failures are logged at INFO
        log.log(logging.WARNING if first else logging.INFO, "broker %s: %s", node, error)
        self._observer.count("connection.failed", broker=str(node.id), error=type(error).__name__)
        self.last_failure = error
        refused = self.directory.failed(node.id, error, now)
        pending, self._unsent = self._unsent, []
        for request in pending:
            waited_for_it = request.node == node.id and request.channel == channel
            if waited_for_it or (request.node is None and refused):
                self._fail_request(request, error, now)
            else:
                self._unsent.append(request)

    def _hang_up(self, connection: Connection) -> list[UnsentRequest]:
        connection_id = (connection.node.id, connection.channel)
        watched = self._watched.pop(connection_id, None)
        if watched is not None:
            self._selector.unregister(watched[0])
        if self._connections.get(connection_id) is connection:
            del self._connections[connection_id]
        return connection.close()

    # --- waiting -----------------------------------------------------------------------------------------------------

    def _watch(self, connection: Connection) -> None:
        """Register with the selector what this connection waits for."""
        if connection.state is ConnectionState.CLOSED:
            return
        connection_id = (connection.node.id, connection.channel)
        want = (connection.transport.fileno(), connection.wants)
        have = self._watched.get(connection_id)
        if have == want:
            return
        if have is not None and have[0] == want[0]:
            self._selector.modify(want[0], want[1], connection_id)
        else:  # a host with several addresses: the next address has a new socket
            if have is not None:
                self._selector.unregister(have[0])
            self._selector.register(want[0], want[1], connection_id)
        self._watched[connection_id] = want

    def _select_timeout(self, timeout: float, now: float) -> float | None:
        if any(c.has_more for c in self._connections.values()):
            return 0.0
        waits = [timeout, *(c.next_timer(now) for c in self._connections.values())]
        idle = self._config.connections_max_idle
        unused = [
            c.last_used for c in self._connections.values() if c.state is ConnectionState.READY and not c.in_flight
        ]
        if idle is not None and unused:
            waits.append(max(0.0, min(unused) + idle - now))
        if self._unsent:
            waits.append(max(0.0, min(r.expires_at for r in self._unsent) - now))
            waits.append(self.directory.shortest_wait(now) or NEVER)
        shortest = min(waits)
        return None if shortest == NEVER else max(0.0, shortest)


def _throttle(response: Any) -> float:
    throttle = getattr(response, "throttle_time", None)
    return 0.0 if throttle is None else float(throttle.total_seconds())
