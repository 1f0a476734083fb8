"""A coordinator of one classic group, in memory and on the test's clock: what Kafka's does, without the network.

Members meet at a barrier (PREPARING) until all have joined or the rebalance timeout is over; the one that leads brings
the assignment (COMPLETING), and then the generation stands (STABLE) and is written down. A new coordinator knows what
was written down last. Sessions expire unless the coordinator holds a member's request. Static members keep their place.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from classic_harness import response
from multilane.wire.messages import ApiKey

NOT_COORDINATOR, ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCE = 16, 22, 25, 27
MEMBER_ID_REQUIRED, FENCED_INSTANCE = 79, 82

Reply = Callable[[Any], None]


class Phase(enum.Enum):
    EMPTY = 0
    PREPARING = 1
    COMPLETING = 2
    STABLE = 3


@dataclass
class Seat:
    """A member as the coordinator sees it."""

    member_id: str
    instance_id: str | None
    protocols: tuple[tuple[str, bytes], ...]
    session: float
    rebalance: float
    expires: float
    assignment: bytes = b""
    join: Reply | None = None
    sync: Reply | None = None

    def on_paper(self) -> Seat:
        return replace(self, join=None, sync=None)


@dataclass
class Written:
    generation: int = 0
    protocol: str | None = None
    leader: str | None = None
    seats: dict[str, Seat] = field(default_factory=dict)


class ClassicGroup:
    def __init__(self) -> None:
        self.now = 0.0
        self.node = 1
        self.phase = Phase.EMPTY
        self.generation = 0
        self.protocol: str | None = None
        self.leader: str | None = None
        self.seats: dict[str, Seat] = {}
        self._pending: set[str] = set()
        self._deadline = math.inf
        self._written = Written()
        self._ids = itertools.count(1)

    def ask(self, api: ApiKey, request: Any, reply: Reply) -> None:
        answer = {
            ApiKey.JOIN_GROUP: self._join,
            ApiKey.SYNC_GROUP: self._sync,
            ApiKey.HEARTBEAT: self._heartbeat,
            ApiKey.LEAVE_GROUP: self._leave,
        }[api]
        answer(request, reply)

    # --- time --------------------------------------------------------------------------------------------------------

    def next_timer(self) -> float:
        sessions = [seat.expires for seat in self.seats.values() if seat.join is None and seat.sync is None]
        return min([*sessions, self._deadline])

    def advance(self, now: float) -> None:
        self.now = now
        for seat in list(self.seats.values()):
            idle = seat.join is None and seat.sync is None
            if idle and seat.expires <= now and seat.member_id in self.seats:
                self._remove(seat)
        if self._deadline <= now:
            if self.phase is Phase.PREPARING:
                for seat in list(self.seats.values()):
                    if seat.join is None and seat.instance_id is None:
                        del self.seats[seat.member_id]
                self._complete_join()
            elif self.phase is Phase.COMPLETING:
                silent = [seat for seat in self.seats.values() if seat.sync is None]
                for seat in silent:
                    del self.seats[seat.member_id]
                self._prepare()

    def move(self) -> None:
        """Another broker takes over, with what was written down."""
        for seat in self.seats.values():
            for api, reply in ((ApiKey.JOIN_GROUP, seat.join), (ApiKey.SYNC_GROUP, seat.sync)):
                if reply is not None:
                    reply(response(api, error_code=NOT_COORDINATOR))
        written = self._written
        self.node = 3 - self.node
        self.generation, self.protocol, self.leader = written.generation, written.protocol, written.leader
        self.seats = {m: replace(s, expires=self.now + s.session) for m, s in written.seats.items()}
        self._pending.clear()
        self._deadline = math.inf
        self.phase = Phase.STABLE if self.seats else Phase.EMPTY

    # --- requests ----------------------------------------------------------------------------------------------------

    def _join(self, said: Any, reply: Reply) -> None:
        protocols = tuple((p.name, bytes(p.metadata)) for p in said.protocols)
        place = next(
            (s for s in self.seats.values() if s.instance_id and s.instance_id == said.group_instance_id), None
        )
        if place is not None and not said.member_id:
            self._replace(place, protocols, said, reply)
        elif place is not None and place.member_id != said.member_id:
            reply(response(ApiKey.JOIN_GROUP, error_code=FENCED_INSTANCE))
        elif said.member_id in self.seats:
            self._join_again(self.seats[said.member_id], protocols, reply)
        elif said.member_id in self._pending or (not said.member_id and said.group_instance_id):
            self._pending.discard(said.member_id)
            self._seat(said.member_id or self._new_id(), protocols, said).join = reply
            self._prepare()
        elif said.member_id:
            reply(response(ApiKey.JOIN_GROUP, error_code=UNKNOWN_MEMBER))
        else:
            self._pending.add(fresh := self._new_id())
            reply(response(ApiKey.JOIN_GROUP, error_code=MEMBER_ID_REQUIRED, member_id=fresh))

    def _join_again(self, seat: Seat, protocols: tuple[tuple[str, bytes], ...], reply: Reply) -> None:
        seat.expires = self.now + seat.session
        unchanged = seat.protocols == protocols
        follows = self.phase is Phase.STABLE and unchanged and seat.member_id != self.leader
        if follows or (self.phase is Phase.COMPLETING and unchanged):
            reply(self._joined(seat))
            return
        seat.protocols, seat.join = protocols, reply
        self._prepare()

    def _replace(self, old: Seat, protocols: tuple[tuple[str, bytes], ...], said: Any, reply: Reply) -> None:
        """A static member came back, as a new process: the old one is fenced."""
        for api, waiting in ((ApiKey.JOIN_GROUP, old.join), (ApiKey.SYNC_GROUP, old.sync)):
            if waiting is not None:
                waiting(response(api, error_code=FENCED_INSTANCE))
        del self.seats[old.member_id]
        seat = self._seat(self._new_id(), protocols, said)
        seat.assignment = old.assignment
        led = self.leader == old.member_id
        if led:
            self.leader = seat.member_id
        if self.phase is Phase.STABLE and self._same_wish(old.protocols, protocols):
            self._write_down()
            reply(self._joined(seat, skip=led))
        else:
            seat.join = reply
            self._prepare()

    @staticmethod
    def _same_wish(old: tuple[tuple[str, bytes], ...], new: tuple[tuple[str, bytes], ...]) -> bool:
        return [name for name, _ in old] == [name for name, _ in new]

    def _sync(self, said: Any, reply: Reply) -> None:
        code = self._check(said)
        if code or self.phase is Phase.PREPARING:
            reply(response(ApiKey.SYNC_GROUP, error_code=code or REBALANCE))
            return
        seat = self.seats[said.member_id]
        seat.expires = self.now + seat.session
        if self.phase is Phase.COMPLETING:
            seat.sync = reply
            if seat.member_id == self.leader:
                self._take_assignment({a.member_id: bytes(a.assignment) for a in said.assignments})
        else:
            reply(response(ApiKey.SYNC_GROUP, assignment=seat.assignment))

    def _take_assignment(self, assignments: dict[str, bytes]) -> None:
        for seat in self.seats.values():
            seat.assignment = assignments.get(seat.member_id, b"")
        self.phase, self._deadline = Phase.STABLE, math.inf
        self._write_down()
        for seat in list(self.seats.values()):
            waiting, seat.sync = seat.sync, None
            seat.expires = self.now + seat.session
            if waiting is not None:
                waiting(response(ApiKey.SYNC_GROUP, assignment=seat.assignment))

    def _heartbeat(self, said: Any, reply: Reply) -> None:
        code = self._check(said)
        if not code:
            seat = self.seats[said.member_id]
            seat.expires = self.now + seat.session
            code = REBALANCE if self.phase is Phase.PREPARING else 0
        reply(response(ApiKey.HEARTBEAT, error_code=code))

    def _leave(self, said: Any, reply: Reply) -> None:
        seat = self.seats.get(said.members[0].member_id)
        reply(response(ApiKey.LEAVE_GROUP, error_code=0 if seat else UNKNOWN_MEMBER))
        if seat is not None:
            self._remove(seat)

    def _check(self, said: Any) -> int:
        place = next(
            (s for s in self.seats.values() if s.instance_id and s.instance_id == said.group_instance_id), None
        )
        if place is not None and place.member_id != said.member_id:
            return FENCED_INSTANCE
        if said.member_id not in self.seats:
            return UNKNOWN_MEMBER
        return ILLEGAL_GENERATION if said.generation_id != self.generation else 0

    # --- the barrier -------------------------------------------------------------------------------------------------

    def _new_id(self) -> str:
        return f"member-{next(self._ids)}"

    def _seat(self, member_id: str, protocols: tuple[tuple[str, bytes], ...], said: Any) -> Seat:
        session = said.session_timeout.total_seconds()
        self.seats[member_id] = Seat(
            member_id,
            said.group_instance_id,
            protocols,
            session,
            said.rebalance_timeout.total_seconds(),
            self.now + session,
        )
        return self.seats[member_id]

    def _remove(self, seat: Seat) -> None:
        del self.seats[seat.member_id]
        if seat.join is not None:
            seat.join(response(ApiKey.JOIN_GROUP, error_code=UNKNOWN_MEMBER))
        if seat.sync is not None:
            seat.sync(response(ApiKey.SYNC_GROUP, error_code=UNKNOWN_MEMBER))
        self._prepare()

    def _prepare(self) -> None:
        if self.phase is not Phase.PREPARING:
            self.phase = Phase.PREPARING
            self._deadline = self.now + max([s.rebalance for s in self.seats.values()], default=0.0)
            for seat in list(self.seats.values()):
                waiting, seat.sync = seat.sync, None
                if waiting is not None:
                    seat.expires = self.now + seat.session
                    waiting(response(ApiKey.SYNC_GROUP, error_code=REBALANCE))
        if all(seat.join is not None for seat in self.seats.values()):
            self._complete_join()

    def _complete_join(self) -> None:
        self._deadline = math.inf
        joined = [seat for seat in self.seats.values() if seat.join is not None]
        self.generation += 1
        if not joined:
            self.seats.clear()
            self.phase, self.leader = Phase.EMPTY, None
            self._write_down()
            return
        if self.leader not in {seat.member_id for seat in joined}:
            self.leader = joined[0].member_id
        common = set.intersection(*({name for name, _ in seat.protocols} for seat in self.seats.values()))
        self.protocol = next(name for name, _ in joined[0].protocols if name in common)
        self.phase = Phase.COMPLETING
        self._deadline = self.now + max(seat.rebalance for seat in self.seats.values())
        for seat in joined:
            waiting, seat.join = seat.join, None
            seat.expires = self.now + seat.session
            assert waiting is not None
            waiting(self._joined(seat))

    def _joined(self, seat: Seat, *, skip: bool = False) -> Any:
        members = []
        if seat.member_id == self.leader:
            members = [(s.member_id, dict(s.protocols)[self.protocol], s.instance_id) for s in self.seats.values()]
        return response(
            ApiKey.JOIN_GROUP,
            generation_id=self.generation,
            protocol_name=self.protocol,
            leader=self.leader,
            member_id=seat.member_id,
            members=members,
            skip_assignment=skip,
        )

    def _write_down(self) -> None:
        self._written = Written(
            self.generation, self.protocol, self.leader, {m: s.on_paper() for m, s in self.seats.items()}
        )
