"""Fetches for all consumers of a network thread: decides what to request from which broker, and handles the answers.

Thread: none (pure state machine); owned by the network thread, one per class of fetches.

A changed cursor (`look_at`) becomes a wanted partition, which is assigned to a connection; a free connection sends a
request to its broker. Nothing here iterates over all cursors: an idle partition stays on its connection and costs
nothing. Readers come and go without an effect on other readers.

Never touches a record, never blocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from multilane.client.fetch.answers import Answers
from multilane.client.fetch.cursor import Cursor, Phase
from multilane.client.fetch.decoder import DecodeTask
from multilane.client.fetch.fetch_connections import EXTRA_WAIT_MS, BrokerConnections, FetchConnection, FetchConnections
from multilane.client.fetch.fetch_session import FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, close_request
from multilane.client.fetch.placing import Placing
from multilane.client.fetch.reader import FetchPolicy, Reader
from multilane.client.fetch.shares import Shares
from multilane.client.fetch.wanted_partitions import WantedKey, WantedPartition, WantedPartitions
from multilane.client.net.requests import NEVER, Poll, RawResponse, UnsentRequest
from multilane.errors import AuthenticationError, MultilaneError, NetworkError, UnsupportedVersion, broker_error
from multilane.logs import logger
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.types import LeaderEpoch, NodeId
from multilane.wire.compose import FETCH_AT_LEAST, FETCH_WITH_TOPIC_IDS, FetchClass, fetch_request
from multilane.wire.fetch import walk_fetch_response
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    import numpy as np

    from multilane.client.metadata import MetadataManager

log = logger(__name__)


@dataclass(frozen=True, slots=True)
class FetchContext:
    """What fetching needs from the network thread; `close_connections` closes the connections of an owner. Nothing is
    fetched before `can_decode`."""

    decode: Callable[[np.ndarray, list[DecodeTask], FetchPolicy], None]
    close_connections: Callable[[str], None]
    observer: Observer = NO_OBSERVER
    can_decode: Callable[[], bool] = lambda: True


class FetchManager:
    def __init__(self, metadata: MetadataManager, policy: FetchPolicy, context: FetchContext, owner: str) -> None:
        self._metadata = metadata
        self._policy = policy
        self._context = context
        self._owner = owner
        self._readers: dict[Reader, None] = {}
        self._fresh: dict[Cursor, Reader] = {}  # changed since the last poll
        self._timers: list[tuple[float, int, Cursor, Reader]] = []
        self._numbers = count()
        self._unplaced: dict[NodeId, list[WantedPartition]] = {}  # only within a poll
        self._held: dict[NodeId, tuple[float, dict[Cursor, Reader]]] = {}  # until when, for lack of a connection
        self._leaderless: dict[Cursor, Reader] = {}
        self._close_requests: list[UnsentRequest] = []
        self._cluster = metadata.cluster
        self._wanted = WantedPartitions()
        self._connections = FetchConnections(owner, policy.connections, policy.backoff)
        self._answers = Answers(metadata, self._wanted, policy, context.observer, self.look_at, self._later)
        self._shares = Shares(self._wanted, policy.kind.max_bytes, self._answers.is_at_end, self.look_at)
        self._placing = Placing(self._connections, self._answers.lag, self._shares.tight, self._release)

    # --- readers -----------------------------------------------------------------------------------------------------

    @property
    def has_readers(self) -> bool:
        return bool(self._readers)

    def look_at(self, reader: Reader, cursor: Cursor) -> None:
        """This cursor changed. If it has moved it is detached at once, so that a look-up or validation of its position
        does not wait for an answer that is no longer needed."""
        if not reader.is_open:
            return
        self._readers[reader] = None
        self._fresh[cursor] = reader
        wanted = reader.attached.get(cursor)
        if wanted is not None and not _is_still_at(cursor, reader, wanted):
            self._wanted.detach(cursor, reader)

    def leave(self, reader: Reader) -> None:
        """Stops fetching for this reader. Answers in flight are dropped for this reader only."""
        reader.is_open = False
        for cursor in tuple(reader.attached):
            self._wanted.detach(cursor, reader)
        self._shares.forget(reader)
        self._readers.pop(reader, None)

    def close(self) -> tuple[UnsentRequest, ...]:
        """Closes the connections after the last reader has left. Returns the requests that close the sessions."""
        self._context.close_connections(self._owner)
        for _, broker in self._connections.in_turn():
            for connection in broker:
                self._close_session(connection)
            for extra in broker.extras:
                self._context.close_connections(extra.channel.owner)
        return tuple(self._close_requests)

    # --- what to request ---------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        cluster_changed = self._metadata.cluster is not self._cluster
        if cluster_changed:
            self._resume_with_leader()
        self._update_wanted(now)
        if cluster_changed:
            self._follow()
        requests: list[UnsentRequest] = []
        wait = NEVER
        for node, broker in self._connections.in_turn():
            spare, moved = self._placing.fold(broker, now) if broker.extras else ([], [])
            unplaced = [wanted for wanted in (*self._unplaced.pop(node, ()), *moved) if wanted.cursors]
            self._hold(node, broker, self._placing.assign(broker, unplaced, now), now)
            sent = self._send_all(broker, now)
            if sent:
                broker.served = self._connections.next_turn()
            requests += sent
            spare += [extra for extra in broker.extras if not extra.carried and extra.state.may_send(now)]
            for extra in dict.fromkeys(spare):
                self._close_extra(broker, extra)
            wait = min(wait, *(extra.state.wait(now) for extra in broker.extras), self._pace_wait(broker, now))
        close_requests, self._close_requests = self._close_requests, []
        return Poll((*requests, *close_requests), min(wait, self._wait(now)))

    def _wait(self, now: float) -> float:
        if self._fresh:
            return 0.0
        times = [until for until, _ in self._held.values()] + [timer[0] for timer in self._timers[:1]]
        return max(0.0, min(times, default=NEVER) - now)

    def _resume_with_leader(self) -> None:
        """Cursors that waited for a leader resume as soon as there is one."""
        for cursor, reader in tuple(self._leaderless.items()):
            leader = self._metadata.cluster.leadership(cursor.partition)
            if leader is not None and leader.node is not None:
                cursor.not_before = 0.0
                self._fresh[cursor] = reader

    def _follow(self) -> None:
        """The cluster metadata changed: partitions requested from brokers that no longer lead them are released. Their
        cursors are handled on the next turn, because a new leader is validated first."""
        self._cluster = self._metadata.cluster
        partitions = set()
        for wanted in self._wanted:
            partitions.add(wanted.partition)
            if wanted.connection is not None and self._has_moved(wanted):
                self._review(wanted)
        self._answers.ends = {p: end for p, end in self._answers.ends.items() if p in partitions}

    def _has_moved(self, wanted: WantedPartition) -> bool:
        leader = self._cluster.leadership(wanted.partition)
        if leader is None or wanted.node not in self._cluster.nodes:
            return True
        for cursor in wanted.cursors:
            if cursor.replica is None and (leader.node != wanted.node or leader.epoch > wanted.leader_epoch):
                return True
            if leader.epoch > cursor.leader_epoch:
                return True
        return False

    def _review(self, wanted: WantedPartition) -> None:
        if wanted.connection is not None and wanted.connection.state.in_flight:
            wanted.connection.review[wanted] = None
        else:
            self._release(wanted)

    def _release(self, wanted: WantedPartition) -> None:
        """Also notifies the consumer: a cursor that is no longer in flight can be validated."""
        for cursor, reader in self._wanted.end(wanted):
            self.look_at(reader, cursor)
            cursor.on_change(cursor)

    # --- what cursors want -------------------------------------------------------------------------------------------

    def _update_wanted(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, cursor, reader = heapq.heappop(self._timers)
            self._fresh[cursor] = reader
        for node, (until, held) in tuple(self._held.items()):
            if now >= until or any(connection.state.may_send(now) for connection in self._connections.to(node)):
                self._fresh.update(held)
                del self._held[node]
        leaderless = self._look_at_fresh(now)
        self._shares.resume()
        if self._look_at_fresh(now) or leaderless:
            self._metadata.request_update()

    def _look_at_fresh(self, now: float) -> bool:
        fresh, self._fresh = self._fresh, {}
        return any([self._look(cursor, reader, now) for cursor, reader in fresh.items()])

    def _look(self, cursor: Cursor, reader: Reader, now: float) -> bool:
        """Updates what a cursor wants. Returns whether it lacks a leader."""
        self._leaderless.pop(cursor, None)
        if (cursor in reader.attached and self._is_still_wanted(cursor, reader, now)) or not self._may_want(
            cursor, reader
        ):
            return False
        if now < cursor.not_before:
            self._later(reader, cursor, cursor.not_before)
            return False
        node = self._node_for(cursor, now)
        if node is None:
            self._leaderless[cursor] = reader
            self._answers.delay(cursor, now)
            self._later(reader, cursor, cursor.not_before)
            return True
        key = self._key(cursor, node)
        if self._shares.has_room(reader) and self._shares.may_join(reader, self._wanted.find(key)):
            self._want(cursor, reader, key)
        else:
            self._shares.wait_for_room(reader, cursor)
        return False

    def _may_want(self, cursor: Cursor, reader: Reader) -> bool:
        if not reader.is_current(cursor) or cursor.phase is not Phase.FETCHING or cursor.in_flight:
            return False
        if cursor.paused and reader.waiting_for_room:
            self._shares.make_room(reader)
        return not cursor.paused

    def _want(self, cursor: Cursor, reader: Reader, key: WantedKey) -> None:
        wanted = self._wanted.attach(cursor, reader, key)
        if wanted is not None:
            self._connections.to(wanted.node)
            self._unplaced.setdefault(wanted.node, []).append(wanted)

    def _is_still_wanted(self, cursor: Cursor, reader: Reader, now: float) -> bool:
        """Whether the cursor still wants its requested partition. If the broker is wrong or the cursor is paused, the
        answer in flight is still awaited."""
        wanted = reader.attached[cursor]
        if not _is_still_at(cursor, reader, wanted):
            self._wanted.detach(cursor, reader)
            return False
        node = self._node_for(cursor, now)
        if not cursor.paused and node is not None and self._key(cursor, node) == wanted.key:
            return True
        if wanted.connection is None or not wanted.connection.state.in_flight:
            self._wanted.detach(cursor, reader)
            return False
        wanted.connection.review[wanted] = None
        return True

    def _key(self, cursor: Cursor, node: NodeId) -> WantedKey:
        if cursor.topic_id is None:
            cursor.topic_id = self._metadata.cluster.topic_id(cursor.partition.topic)
        epoch = cursor.leader_epoch if cursor.replica is None else LeaderEpoch(-1)
        return (node, cursor.partition, cursor.topic_id, cursor.offset, epoch)

    def _node_for(self, cursor: Cursor, now: float) -> NodeId | None:
        if cursor.replica is not None and (
            now >= cursor.replica_until or cursor.replica not in self._metadata.cluster.nodes
        ):
            cursor.replica = None
        if cursor.replica is not None:
            return cursor.replica
        leader = self._metadata.cluster.leadership(cursor.partition)
        return None if leader is None else leader.node

    def _later(self, reader: Reader, cursor: Cursor, time: float) -> None:
        heapq.heappush(self._timers, (time, next(self._numbers), cursor, reader))

    def _hold(self, node: NodeId, broker: BrokerConnections, waiting: list[WantedPartition], now: float) -> None:
        if not waiting:
            return
        held = self._held.setdefault(node, (NEVER, {}))[1]
        for wanted in waiting:
            held.update(self._wanted.end(wanted))
        self._held[node] = (now + self._placing.wait(broker, now), held)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _send_all(self, broker: BrokerConnections, now: float) -> list[UnsentRequest]:
        pace = self._policy.pace
        ready = [c for c in broker if c.carried and c.state.may_send(now) and now >= c.paced_until(pace)]
        ready.sort(key=lambda c: not c.added)  # when room is short, those that waited for it go first
        sent = []
        for number, connection in enumerate(ready):
            self._shares.leave_out(connection)
            if connection.carried:
                sent.append(self._request(connection, ready[number:], now))
        return sent

    def _pace_wait(self, broker: BrokerConnections, now: float) -> float:
        """Seconds until the pace allows a free connection to send."""
        resting = (connection for connection in broker.base if connection.carried and connection.state.may_send(now))
        return min((max(0.0, connection.paced_until(self._policy.pace) - now) for connection in resting), default=NEVER)

    def _request(self, connection: FetchConnection, peers: list[FetchConnection], now: float) -> UnsentRequest:
        kind = self._policy.kind
        limit = self._shares.limit(connection, peers)
        turn = self._connections.next_turn()
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
            client_id=self._policy.client_id,
        )

    def _close_extra(self, broker: BrokerConnections, connection: FetchConnection) -> None:
        broker.extras.remove(connection)
        self._close_session(connection)
        self._context.close_connections(connection.channel.owner)

    def _close_session(self, connection: FetchConnection) -> None:
        """Sent on the control connection, which does not wait; a session is not tied to a connection. Best effort:
        brokers forget idle sessions by themselves."""
        step = connection.session.close()
        if step is not None:
            self._close_requests.append(close_request(connection.node, step))

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_frame(self, connection: FetchConnection, raw: RawResponse, now: float) -> None:
        response = walk_fetch_response(raw.frame, raw.version, raw.correlation_id)
        observer = self._context.observer
        observer.count("fetch.bytes", raw.frame.nbytes, broker=str(connection.node))
        raw.throttled(response.throttle_ms)
        if response.error_code:
            self._release_all(connection)
            connection.session.reset()
            connection.state.failed(now)
            if response.error_code not in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH):
                self._metadata.request_update()
            log.info("broker %s rejected a fetch: %s", raw.broker, broker_error(response.error_code, "Fetch"))
            observer.count("fetch.refused", broker=str(connection.node), code=str(response.error_code))
            return
        connection.session.on_answer(response.session_id)
        connection.state.succeeded()
        tasks = self._answers.sort_out(connection, response, raw, now)
        for wanted in tuple(connection.carried.values() if connection.is_extra else connection.review):
            self._answers.ends.setdefault(wanted.partition, wanted.offset)
            self._release(wanted)
        if tasks:
            self._context.decode(raw.frame, tasks, self._policy)

    def _release_all(self, connection: FetchConnection) -> list[tuple[Cursor, Reader]]:
        """The request ended without an answer. Returns its cursors and readers."""
        owners: list[tuple[Cursor, Reader]] = []
        for wanted in tuple(connection.carried.values()):
            owners += self._wanted.end(wanted)
        for cursor, reader in owners:
            self.look_at(reader, cursor)
            cursor.on_change(cursor)
        return owners

    def _on_failure(self, connection: FetchConnection, error: MultilaneError, now: float) -> None:
        owners = self._release_all(connection)
        connection.session.reset()
        connection.state.failed(now)
        for cursor, _ in owners:
            if cursor.replica == connection.node:  # KIP-392: fall back to the leader
                cursor.replica = None
        if isinstance(error, NetworkError) or error.refresh_metadata:
            self._metadata.request_update()
        if isinstance(error, AuthenticationError) and not error.retriable:  # the others may accept it
            for reader in dict.fromkeys(reader for _, reader in owners):
                reader.on_error.refused(error)
        elif isinstance(error, UnsupportedVersion) or not (error.retriable or error.fatal):
            for cursor, reader in owners:
                if reader.is_current(cursor) and cursor.phase is Phase.FETCHING:
                    reader.on_error.stopped(cursor, error)


def _is_still_at(cursor: Cursor, reader: Reader, wanted: WantedPartition) -> bool:
    return reader.is_current(cursor) and cursor.phase is Phase.FETCHING and cursor.offset == wanted.offset
