"""Fetches for all consumers of a network thread: decides what to request from which broker.

Thread: none (pure state machine); owned by the network thread, one per class of fetches.

A changed cursor (`look_at`) becomes a wanted partition, which is assigned to a connection; a free connection sends a
request to its broker. Nothing here iterates over all cursors: an idle partition stays on its connection and costs
nothing. Readers come and go without an effect on other readers.

Never touches a record, never blocks.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from itertools import count
from typing import TYPE_CHECKING

from multilane.client.fetch.answers import Answers
from multilane.client.fetch.cursor import Cursor, Phase
from multilane.client.fetch.fetch_connections import BrokerConnections, FetchConnections
from multilane.client.fetch.fetch_requests import FetchContext, FetchRequests
from multilane.client.fetch.placing import Placing
from multilane.client.fetch.reader import FetchSettings, Reader
from multilane.client.fetch.shares import Shares
from multilane.client.fetch.wanted_partitions import WantedKey, WantedPartition, WantedPartitions
from multilane.client.net.requests import NEVER, Poll, UnsentRequest
from multilane.logs import logger
from multilane.types import LeaderEpoch, NodeId

if TYPE_CHECKING:
    from multilane.client.metadata import MetadataManager

log = logger(__name__)


class FetchManager:
    def __init__(self, metadata: MetadataManager, settings: FetchSettings, context: FetchContext, owner: str) -> None:
        self._metadata = metadata
        self._settings = settings
        self._context = context
        self._owner = owner
        self._readers: dict[Reader, None] = {}
        self._fresh: dict[Cursor, Reader] = {}  # changed since the last poll
        self._timers: list[tuple[float, int, Cursor, Reader]] = []
        self._numbers = count()
        self._unplaced: dict[NodeId, list[WantedPartition]] = {}  # only within a poll
        self._without_connection: dict[NodeId, tuple[float, dict[Cursor, Reader]]] = {}  # and until when
        self._leaderless: dict[Cursor, Reader] = {}
        self._cluster = metadata.cluster
        self._wanted = WantedPartitions()
        self._connections = FetchConnections(owner, settings.connections, settings.backoff)
        self._answers = Answers(metadata, self._wanted, settings, context.observer, self.look_at, self._later)
        self._shares = Shares(self._wanted, settings.kind.max_bytes, self._answers.is_at_end, self.look_at)
        self._placing = Placing(self._connections, self._answers.lag, self._shares.tight, self._release)
        self._requests = FetchRequests(
            settings,
            context,
            self._connections,
            self._shares,
            self._answers,
            metadata.request_update,
            self._release_all,
        )

    # --- readers -----------------------------------------------------------------------------------------------------

    @property
    def has_readers(self) -> bool:
        return bool(self._readers)

    def look_at(self, reader: Reader, cursor: Cursor) -> None:
        """This cursor changed. If it has moved it is detached at once, so that a lookup or validation of its position
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
                self._requests.close_session(connection)
            for extra in broker.extras:
                self._context.close_connections(extra.channel.owner)
        return self._requests.take_close_requests()

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
            self._wait_for_connection(node, broker, self._placing.assign(broker, unplaced, now), now)
            sent = self._requests.send(broker, now)
            if sent:
                broker.served = self._connections.next_turn()
            requests += sent
            spare += [extra for extra in broker.extras if not extra.carried and extra.state.may_send(now)]
            for extra in dict.fromkeys(spare):
                self._requests.close_extra(broker, extra)
            wait = min(wait, *(extra.state.wait(now) for extra in broker.extras), self._requests.pace_wait(broker, now))
        return Poll((*requests, *self._requests.take_close_requests()), min(wait, self._wait(now)))

    def _wait(self, now: float) -> float:
        if self._fresh:
            return 0.0
        times = [until for until, _ in self._without_connection.values()] + [timer[0] for timer in self._timers[:1]]
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
        self._release_all((wanted,))

    def _release_all(self, ended: Iterable[WantedPartition]) -> list[tuple[Cursor, Reader]]:
        """Also notifies the consumers: a cursor that is no longer in flight can be validated. Returns the cursors that
        wanted these partitions, and their readers."""
        owners: list[tuple[Cursor, Reader]] = []
        for wanted in ended:
            owners += self._wanted.end(wanted)
        for cursor, reader in owners:
            self.look_at(reader, cursor)
            cursor.on_change(cursor)
        return owners

    # --- what cursors want -------------------------------------------------------------------------------------------

    def _update_wanted(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, cursor, reader = heapq.heappop(self._timers)
            self._fresh[cursor] = reader
        for node, (until, cursors) in tuple(self._without_connection.items()):
            if now >= until or any(connection.state.may_send(now) for connection in self._connections.to(node)):
                self._fresh.update(cursors)
                del self._without_connection[node]
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

    def _wait_for_connection(
        self, node: NodeId, broker: BrokerConnections, waiting: list[WantedPartition], now: float
    ) -> None:
        if not waiting:
            return
        cursors = self._without_connection.setdefault(node, (NEVER, {}))[1]
        for wanted in waiting:
            cursors.update(self._wanted.end(wanted))
        self._without_connection[node] = (now + self._placing.wait(broker, now), cursors)


def _is_still_at(cursor: Cursor, reader: Reader, wanted: WantedPartition) -> bool:
    return reader.is_current(cursor) and cursor.phase is Phase.FETCHING and cursor.offset == wanted.offset
