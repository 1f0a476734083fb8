"""The fetch requests of one class of fetches: what a connection sends, and what becomes of the response.

Thread: none (pure state machine); owned by the network thread, one per class of fetches.

Owns the requests that close sessions until they are sent. Never decides what is fetched from where: `fetching` does,
and hears which wanted partitions are released.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from multilane.client.fetch.answers import Answers
from multilane.client.fetch.cursor import Cursor, Phase
from multilane.client.fetch.decoder import DecodeTask
from multilane.client.fetch.fetch_connections import EXTRA_WAIT_MS, BrokerConnections, FetchConnection, FetchConnections
from multilane.client.fetch.fetch_session import FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, close_request
from multilane.client.fetch.reader import FetchSettings, Reader
from multilane.client.fetch.shares import Shares
from multilane.client.fetch.wanted_partitions import WantedPartition
from multilane.client.net.requests import NEVER, RawResponse, UnsentRequest
from multilane.errors import AuthenticationError, MultilaneError, NetworkError, UnsupportedVersion, broker_error
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.wire.compose import FETCH_AT_LEAST, FETCH_WITH_TOPIC_IDS, FetchClass, fetch_request
from multilane.wire.fetch import walk_fetch_response
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    import numpy as np


log = logger(__name__)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What fetching needs from the network thread; `close_connections` closes the connections of an owner. Nothing is
    fetched before `can_decode`."""

    decode: Callable[[np.ndarray, list[DecodeTask], FetchSettings], None]
    close_connections: Callable[[str], None]
    observer: Observer = NO_OBSERVER
    can_decode: Callable[[], bool] = lambda: True


@dataclass(slots=True, eq=False)
class FetchRequests:
    """`release` ends wanted partitions and returns their cursors, with their readers."""

    settings: FetchSettings
    context: FetchContext
    connections: FetchConnections
    shares: Shares
    answers: Answers
    refresh_metadata: Callable[[], None]
    release: Callable[[Iterable[WantedPartition]], list[tuple[Cursor, Reader]]]
    _close_requests: list[UnsentRequest] = field(default_factory=list)

    def send(self, broker: BrokerConnections, now: float) -> list[UnsentRequest]:
        pace = self.settings.pace
        ready = [c for c in broker if c.carried and c.state.may_send(now) and now >= c.paced_until(pace)]
        ready.sort(key=lambda c: not c.added)  # when room is short, those that waited for it go first
        sent = []
        for number, connection in enumerate(ready):
            self.shares.leave_out(connection)
            if connection.carried:
                sent.append(self._request(connection, ready[number:], now))
        return sent

    def pace_wait(self, broker: BrokerConnections, now: float) -> float:
        """Seconds until the pace allows a free connection to send."""
        resting = (connection for connection in broker.base if connection.carried and connection.state.may_send(now))
        return min(
            (max(0.0, connection.paced_until(self.settings.pace) - now) for connection in resting), default=NEVER
        )

    def _request(self, connection: FetchConnection, peers: list[FetchConnection], now: float) -> UnsentRequest:
        kind = self.settings.kind
        limit = self.shares.limit(connection, peers)
        turn = self.connections.next_turn()
        for wanted in connection.added:
            wanted.max_bytes = max(connection.sizes[reader] for reader in wanted.cursors.values())
            connection.session.put(wanted.item())
            for cursor in wanted.cursors:
                cursor.in_flight = True
                cursor.served = turn
        connection.added, connection.changed = {}, {}
        session = connection.session.next_request()
        max_wait_ms = min(kind.max_wait_ms, EXTRA_WAIT_MS) if connection.is_extra else kind.max_wait_ms
        sized = FetchClass(max_wait_ms, kind.min_bytes, limit, kind.read_committed, kind.rack)
        connection.sent_at = now
        connection.state.sent()
        return UnsentRequest(
            api=ApiKey.FETCH,
            build=lambda version: fetch_request(version, sized, session.named, session.forgotten, session.step),
            on_response=lambda raw, at: self._on_frame(connection, raw, at),
            on_failure=lambda error, at: self._on_failure(connection, error, at),
            node=connection.node,
            channel=connection.channel,
            at_least=FETCH_AT_LEAST,
            at_most=None if not connection.without_topic_id else FETCH_WITH_TOPIC_IDS - 1,
            raw=True,
            client_id=self.settings.client_id,
        )

    def close_extra(self, broker: BrokerConnections, connection: FetchConnection) -> None:
        broker.extras.remove(connection)
        self.close_session(connection)
        self.context.close_connections(connection.channel.owner)

    def close_session(self, connection: FetchConnection) -> None:
        """Sent on the control connection, which does not wait; a session is not tied to a connection. Best effort:
        brokers forget idle sessions by themselves."""
        step = connection.session.close()
        if step is not None:
            self._close_requests.append(close_request(connection.node, step))

    def take_close_requests(self) -> tuple[UnsentRequest, ...]:
        taken, self._close_requests = self._close_requests, []
        return tuple(taken)

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_frame(self, connection: FetchConnection, raw: RawResponse, now: float) -> None:
        response = walk_fetch_response(raw.frame, raw.version, raw.correlation_id)
        observer = self.context.observer
        observer.count("fetch.bytes", raw.frame.nbytes, broker=str(connection.node))
        raw.throttled(response.throttle_ms)
        if response.error_code:
            self.release(tuple(connection.carried.values()))
            connection.session.reset()
            connection.state.failed(now)
            if response.error_code not in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH):
                self.refresh_metadata()
            log.info("broker %s rejected a fetch: %s", raw.broker, broker_error(response.error_code, "Fetch"))
            observer.count("fetch.refused", broker=str(connection.node), code=str(response.error_code))
            return
        connection.session.on_answer(response.session_id)
        connection.state.succeeded()
        tasks = self.answers.sort_out(connection, response, raw, now)
        for wanted in tuple(connection.carried.values() if connection.is_extra else connection.review):
            self.answers.ends.setdefault(wanted.partition, wanted.offset)
            self.release((wanted,))
        if tasks:
            self.context.decode(raw.frame, tasks, self.settings)

    def _on_failure(self, connection: FetchConnection, error: MultilaneError, now: float) -> None:
        owners = self.release(tuple(connection.carried.values()))
        connection.session.reset()
        connection.state.failed(now)
        for cursor, _ in owners:
            if cursor.replica == connection.node:  # KIP-392: fall back to the leader
                cursor.replica = None
        if isinstance(error, NetworkError) or error.refresh_metadata:
            self.refresh_metadata()
        if isinstance(error, AuthenticationError) and not error.retriable:  # the others may accept it
            for reader in dict.fromkeys(reader for _, reader in owners):
                reader.on_error.refused(error)
        elif isinstance(error, UnsupportedVersion) or not (error.retriable or error.fatal):
            for cursor, reader in owners:
                if reader.is_current(cursor) and cursor.phase is Phase.FETCHING:
                    reader.on_error.stopped(cursor, error)
