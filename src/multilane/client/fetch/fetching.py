"""Fetches: what all consumers of a thread want of which broker, and who is told of the answers.

Thread: none (pure state machine); owned by the network thread, one per class of fetches.

Cursors that changed are looked at (`look_at`) and become wishes; wishes are put on lines; a line that is free asks its
broker. Nothing here walks over all cursors: a partition without news stays on its line and costs nothing, whoever it
belongs to. Readers come and go, and what one of them does changes nothing for the others.

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
from multilane.client.fetch.fetch_session import FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH, farewell
from multilane.client.fetch.placing import Placing
from multilane.client.fetch.reader import FetchPolicy, Reader
from multilane.client.fetch.shares import Shares
from multilane.client.fetch.wanted_partitions import WantedPartition, WantedPartitions, WishKey
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
    """What the network thread lends to its fetching; `hang_up` closes the connections of an owner."""

    decode: Callable[[np.ndarray, list[DecodeTask], FetchPolicy], None]
    hang_up: Callable[[str], None]
    observer: Observer = NO_OBSERVER


class FetchManager:
    def __init__(self, metadata: MetadataManager, policy: FetchPolicy, around: FetchContext, owner: str) -> None:
        self._metadata = metadata
        self._policy = policy
        self._around = around
        self._owner = owner
        self._readers: dict[Reader, None] = {}
        self._fresh: dict[Cursor, Reader] = {}  # to be looked at
        self._timers: list[tuple[float, int, Cursor, Reader]] = []
        self._numbers = count()
        self._homeless: dict[NodeId, list[WantedPartition]] = {}  # only within a poll
        self._held: dict[NodeId, tuple[float, dict[Cursor, Reader]]] = {}  # until when, for want of a line
        self._leaderless: dict[Cursor, Reader] = {}
        self._farewells: list[UnsentRequest] = []
        self._cluster = metadata.cluster
        self._wishes = WantedPartitions()
        self._lines = FetchConnections(owner, policy.lines, policy.backoff)
        self._answers = Answers(metadata, self._wishes, policy, around.observer, self.look_at, self._later)
        self._shares = Shares(self._wishes, policy.kind.max_bytes, self.look_at)
        self._placing = Placing(self._lines, self._answers.lag, self._shares.tight, self._release)

    # --- readers -----------------------------------------------------------------------------------------------------

    @property
    def has_readers(self) -> bool:
        return bool(self._readers)

    def look_at(self, reader: Reader, cursor: Cursor) -> None:
        """Something about this cursor changed. One that stands elsewhere now is let go at once: whoever looks up or
        validates its place does not have to wait for an answer that nobody wants."""
        if not reader.is_open:
            return
        self._readers[reader] = None
        self._fresh[cursor] = reader
        wish = reader.attached.get(cursor)
        if wish is not None and not _stands_at(cursor, reader, wish):
            self._wishes.detach(cursor, reader)

    def leave(self, reader: Reader) -> None:
        """Nothing is fetched for this reader any more; what is under way is dropped, for it alone."""
        reader.is_open = False
        for cursor in tuple(reader.attached):
            self._wishes.detach(cursor, reader)
        self._shares.forget(reader)
        self._readers.pop(reader, None)

    def close(self) -> tuple[UnsentRequest, ...]:
        """The last reader is gone: connections too. Returns what tells the brokers that the sessions are over."""
        self._around.hang_up(self._owner)
        for _, bundle in self._lines.in_turn():
            for line in bundle:
                self._say_goodbye(line)
            for extra in bundle.extras:
                self._around.hang_up(extra.channel.owner)
        return tuple(self._farewells)

    # --- what to ask -------------------------------------------------------------------------------------------------

    def poll(self, now: float) -> Poll:
        has_news = self._metadata.cluster is not self._cluster
        if has_news:
            self._find_leaders()
        self._hear(now)
        if has_news:
            self._follow()
        requests: list[UnsentRequest] = []
        wait = NEVER
        for node, bundle in self._lines.in_turn():
            spare, moved = self._placing.fold(bundle, now) if bundle.extras else ([], [])
            homeless = [wish for wish in (*self._homeless.pop(node, ()), *moved) if wish.cursors]
            self._hold(node, bundle, self._placing.place(bundle, homeless, now), now)
            sent = self._send_all(bundle, now)
            if sent:
                bundle.served = self._lines.next_turn()
            requests += sent
            spare += [extra for extra in bundle.extras if not extra.wishes and extra.state.may_send(now)]
            for extra in dict.fromkeys(spare):
                self._give_up(bundle, extra)
            wait = min(wait, *(extra.state.wait(now) for extra in bundle.extras), self._rest(bundle, now))
        farewells, self._farewells = self._farewells, []
        return Poll((*requests, *farewells), min(wait, self._wait(now)))

    def _wait(self, now: float) -> float:
        if self._fresh:
            return 0.0
        times = [until for until, _ in self._held.values()] + [timer[0] for timer in self._timers[:1]]
        return max(0.0, min(times, default=NEVER) - now)

    def _find_leaders(self) -> None:
        """Whoever waited for a leader goes on as soon as there is one."""
        for cursor, reader in tuple(self._leaderless.items()):
            leader = self._metadata.cluster.leadership(cursor.partition)
            if leader is not None and leader.node is not None:
                cursor.not_before = 0.0
                self._fresh[cursor] = reader

    def _follow(self) -> None:
        """The picture of the cluster changed: what is asked of brokers that no longer lead is thought over, not before
        the next turn, because a new leader is validated first."""
        self._cluster = self._metadata.cluster
        partitions = set()
        for wish in self._wishes:
            partitions.add(wish.partition)
            if wish.line is not None and self._has_moved(wish):
                self._think_over(wish)
        self._answers.ends = {p: end for p, end in self._answers.ends.items() if p in partitions}

    def _has_moved(self, wish: WantedPartition) -> bool:
        leader = self._cluster.leadership(wish.partition)
        if leader is None or wish.node not in self._cluster.nodes:
            return True
        for cursor in wish.cursors:
            if cursor.replica is None and (leader.node != wish.node or leader.epoch > wish.leader_epoch):
                return True
            if leader.epoch > cursor.leader_epoch:
                return True
        return False

    def _think_over(self, wish: WantedPartition) -> None:
        if wish.line is not None and wish.line.state.in_flight:
            wish.line.review[wish] = None
        else:
            self._release(wish)

    def _release(self, wish: WantedPartition) -> None:
        """The consumer hears of it too: what is no longer in flight can be validated."""
        for cursor, reader in self._wishes.end(wish):
            self.look_at(reader, cursor)
            cursor.on_change(cursor)

    # --- what cursors want -------------------------------------------------------------------------------------------

    def _hear(self, now: float) -> None:
        while self._timers and self._timers[0][0] <= now:
            _, _, cursor, reader = heapq.heappop(self._timers)
            self._fresh[cursor] = reader
        for node, (until, held) in tuple(self._held.items()):
            if now >= until or any(line.state.may_send(now) for line in self._lines.to(node)):
                self._fresh.update(held)
                del self._held[node]
        leaderless = False
        while True:
            fresh, self._fresh = self._fresh, {}
            for cursor, reader in fresh.items():
                leaderless = self._look(cursor, reader, now) or leaderless
            self._shares.unpark()
            if not self._fresh:
                break
        if leaderless:
            self._metadata.request_update()

    def _look(self, cursor: Cursor, reader: Reader, now: float) -> bool:
        """Find out what a cursor wants now; whether it lacks a leader."""
        self._leaderless.pop(cursor, None)
        if (cursor in reader.attached and self._goes_on(cursor, reader, now)) or not self._may_want(cursor, reader):
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
        if self._shares.has_room(reader):
            self._want(cursor, reader, node)
        else:
            self._shares.park(reader, cursor)
        return False

    def _may_want(self, cursor: Cursor, reader: Reader) -> bool:
        if not reader.is_current(cursor) or cursor.phase is not Phase.FETCHING or cursor.in_flight:
            return False
        if cursor.paused and reader.parked:
            self._shares.make_room(reader)
        return not cursor.paused

    def _want(self, cursor: Cursor, reader: Reader, node: NodeId) -> None:
        wish = self._wishes.attach(cursor, reader, self._key(cursor, node))
        if wish is not None:
            self._lines.to(node)
            self._homeless.setdefault(node, []).append(wish)

    def _goes_on(self, cursor: Cursor, reader: Reader, now: float) -> bool:
        """Whether the cursor still wants what is asked for it. An answer to a question that is merely put to the wrong
        broker, or for a cursor that was paused, is still waited for."""
        wish = reader.attached[cursor]
        if not _stands_at(cursor, reader, wish):
            self._wishes.detach(cursor, reader)
            return False
        node = self._node_for(cursor, now)
        if not cursor.paused and node is not None and self._key(cursor, node) == wish.key:
            return True
        if wish.line is None or not wish.line.state.in_flight:
            self._wishes.detach(cursor, reader)
            return False
        wish.line.review[wish] = None
        return True

    def _key(self, cursor: Cursor, node: NodeId) -> WishKey:
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

    def _hold(self, node: NodeId, bundle: BrokerConnections, wishes: list[WantedPartition], now: float) -> None:
        if not wishes:
            return
        held = self._held.setdefault(node, (NEVER, {}))[1]
        for wish in wishes:
            held.update(self._wishes.end(wish))
        self._held[node] = (now + self._placing.wait(bundle, now), held)

    # --- requests ----------------------------------------------------------------------------------------------------

    def _send_all(self, bundle: BrokerConnections, now: float) -> list[UnsentRequest]:
        pace = self._policy.pace
        going = [line for line in bundle if line.wishes and line.state.may_send(now) and now >= line.rests_until(pace)]
        going.sort(key=lambda line: not line.added)  # where room is short, those first that had to wait for it
        sent = []
        for number, line in enumerate(going):
            self._shares.leave_out(line)
            if line.wishes:
                sent.append(self._request(line, going[number:], now))
        return sent

    def _rest(self, bundle: BrokerConnections, now: float) -> float:
        """Seconds until a line has rested that could send already."""
        resting = (line for line in bundle.base if line.wishes and line.state.may_send(now))
        return min((max(0.0, line.rests_until(self._policy.pace) - now) for line in resting), default=NEVER)

    def _request(self, line: FetchConnection, peers: list[FetchConnection], now: float) -> UnsentRequest:
        kind = self._policy.kind
        limit = self._shares.limit(line, peers)
        turn = self._lines.next_turn()
        for wish in line.added:
            wish.max_bytes = max(line.sizes[reader] for reader in wish.cursors.values())
            line.session.put(wish.item())
            for cursor in wish.cursors:
                cursor.in_flight = True
                cursor.served = turn
        line.added, line.changed = {}, {}
        session = line.session.next_request()
        longest = min(kind.max_wait_ms, EXTRA_WAIT_MS) if line.is_extra else kind.max_wait_ms
        sized = FetchClass(longest, kind.min_bytes, limit, kind.read_committed, kind.rack)
        line.sent_at = now
        line.state.sent()
        return UnsentRequest(
            api=ApiKey.FETCH,
            build=lambda version: fetch_request(version, sized, session.named, session.forgotten, session.step),
            on_response=lambda raw, at: self._on_frame(line, raw, at),
            on_failure=lambda error, at: self._on_failure(line, error, at),
            node=line.node,
            channel=line.channel,
            at_least=FETCH_AT_LEAST,
            at_most=None if not line.nameless else FETCH_WITH_TOPIC_IDS - 1,
            raw=True,
            client_id=self._policy.client_id,
        )

    def _give_up(self, bundle: BrokerConnections, line: FetchConnection) -> None:
        bundle.extras.remove(line)
        self._say_goodbye(line)
        self._around.hang_up(line.channel.owner)

    def _say_goodbye(self, line: FetchConnection) -> None:
        """On the control connection, which does not wait: a session belongs to no connection. Best effort: what the
        broker does not hear of it forgets by itself."""
        step = line.session.close()
        if step is not None:
            self._farewells.append(farewell(line.node, step))

    # --- answers -----------------------------------------------------------------------------------------------------

    def _on_frame(self, line: FetchConnection, raw: RawResponse, now: float) -> None:
        response = walk_fetch_response(raw.frame, raw.version, raw.correlation_id)
        observer = self._around.observer
        observer.count("fetch.bytes", raw.frame.nbytes, broker=str(line.node))
        raw.throttled(response.throttle_ms)
        if response.error_code:
            self._let_go(line)
            line.session.reset()
            line.state.failed(now)
            if response.error_code not in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH):
                self._metadata.request_update()
            log.info("broker %s refused a fetch: %s", raw.broker, broker_error(response.error_code, "Fetch"))
            observer.count("fetch.refused", broker=str(line.node), code=str(response.error_code))
            return
        line.session.on_answer(response.session_id)
        line.state.succeeded()
        tasks = self._answers.sort_out(line, response, raw, now)
        for wish in tuple(line.wishes.values() if line.is_extra else line.review):
            self._answers.ends.setdefault(wish.partition, wish.offset)
            self._release(wish)
        if tasks:
            self._around.decode(raw.frame, tasks, self._policy)

    def _let_go(self, line: FetchConnection) -> list[tuple[Cursor, Reader]]:
        """The request is over without an answer; whose it was."""
        was: list[tuple[Cursor, Reader]] = []
        for wish in tuple(line.wishes.values()):
            was += self._wishes.end(wish)
        for cursor, reader in was:
            self.look_at(reader, cursor)
            cursor.on_change(cursor)
        return was

    def _on_failure(self, line: FetchConnection, error: MultilaneError, now: float) -> None:
        was = self._let_go(line)
        line.session.reset()
        line.state.failed(now)
        for cursor, _ in was:
            if cursor.replica == line.node:  # KIP-392: a replica that does not answer is left for the leader
                cursor.replica = None
        if isinstance(error, NetworkError) or error.refresh_metadata:
            self._metadata.request_update()
        if isinstance(error, AuthenticationError) and not error.retriable:  # others may be fine: who would tell it?
            for reader in dict.fromkeys(reader for _, reader in was):
                reader.trouble.refused(error)
        elif isinstance(error, UnsupportedVersion) or not (error.retriable or error.fatal):
            for cursor, reader in was:
                if reader.is_current(cursor) and cursor.phase is Phase.FETCHING:
                    reader.trouble.stopped(cursor, error)


def _stands_at(cursor: Cursor, reader: Reader, wish: WantedPartition) -> bool:
    return reader.is_current(cursor) and cursor.phase is Phase.FETCHING and cursor.offset == wish.offset
