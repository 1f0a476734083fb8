"""One process of one client: `python -m bench.group.member_child startup|steered '<order as JSON>'`.

Thread: application.

`startup` times the first record of a first and a second consumer and ends. `steered` warms up in a group of its own,
then follows the commands of its standard input (`subscribe`, then `close`). It reports when it has its partitions and,
four times a second, which it reads; at the end it reports the times of all records. Times are wall clock times, so that
two processes can be compared.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from bench.group.members import Member, Opened, open_client
from bench.group.pauses import Arrival
from bench.group.systems import SYSTEMS, Seat
from bench.java import JavaProgram

GIVE_UP_SECONDS: Final = 60.0
_POLL_SECONDS: Final = 0.05
_STATUS_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Order:
    system: str
    seat: dict[str, Any]
    began: float
    java: tuple[str, str] | None = None  # program, class path
    expects: int = 0  # partitions, of a steered member

    def open(self) -> Opened:
        java = None if self.java is None else JavaProgram(Path(self.java[0]), self.java[1])
        return open_client(SYSTEMS[self.system], self.began, java)


@dataclass(frozen=True, slots=True)
class Started:
    """Wall clock times of the constructor's call, of `subscribe`, and of the first record."""

    created: float
    subscribed: float
    first: float


def first_record(opened: Opened, seat: Seat) -> tuple[Member, Started]:
    created = time.time()
    member = opened.make(seat)
    subscribed = time.time()
    member.subscribe()
    while not member.poll(1.0):
        if time.time() > subscribed + GIVE_UP_SECONDS:
            raise RuntimeError(f"{seat.group}: no record arrived for {GIVE_UP_SECONDS} s")
    return member, Started(created, subscribed, time.time())


def startup(order: Order) -> dict[str, Any]:
    """The first consumer of a fresh process, then a second one in another group, while the first is still open."""
    opened = order.open()
    seat = Seat(**order.seat)
    first, cold = first_record(opened, seat)
    second, warm = first_record(opened, replace(seat, group=f"{seat.group}-warm"))
    first.close()
    second.close()
    opened.close()
    return {"began": opened.began, "cold": asdict(cold), "warm": asdict(warm)}


class Steered:
    """A member that joins and leaves on command."""

    def __init__(self, order: Order) -> None:
        self._commands: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._opened = order.open()
        self._expects = order.expects
        seat = Seat(**order.seat)
        first_record(self._opened, replace(seat, group=f"{seat.group}-warm-{os.getpid()}"))[0].close()
        self._member = self._opened.make(seat)
        self._arrivals: list[Arrival] = []
        threading.Thread(target=self._listen, name="stdin", daemon=True).start()

    def run(self) -> None:
        tell("ready")
        self._expect("subscribe")
        subscribed = time.time()
        self._member.subscribe()
        self._read()
        closing = time.time()
        self._member.close()
        tell("end", subscribed=subscribed, closing=closing, closed=time.time(), arrivals=self._arrivals)
        self._opened.close()

    def _read(self) -> None:
        seen: set[int] = set()
        told = time.time()
        is_settled = False
        while self._commands.empty():
            partitions = self._member.poll(_POLL_SECONDS)
            now = time.time()
            if partitions:
                self._arrivals.append((now, sorted(partitions)))
                seen |= partitions
            if not is_settled and self._member.holds() >= self._expects:
                is_settled = True
                tell("assigned", at=now)
            if now > told + _STATUS_SECONDS:
                tell("reads", since=told, partitions=sorted(seen))
                seen.clear()
                told = now
        self._expect("close")

    def _expect(self, command: str) -> None:
        given = self._commands.get()
        if given != command:
            raise RuntimeError(f"told {given!r} instead of {command!r}")

    def _listen(self) -> None:
        for line in sys.stdin:
            self._commands.put(line.strip())
        self._commands.put("nothing more")


def tell(event: str, **facts: Any) -> None:
    print(json.dumps({"event": event, **facts}), flush=True)


def main(kind: str, text: str) -> None:
    order = Order(**json.loads(text))
    if kind == "startup":
        tell("end", **startup(order))
    else:
        Steered(order).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
