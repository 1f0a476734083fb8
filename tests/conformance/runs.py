"""A run: cases, members that come and go, records that trickle in, and everything that was told of it."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from broker.produce import Content, Row, new_producer, send
from conformance.cases import Case, Item, name_beside, topic_across
from conformance.engine import Engine, Member
from conformance.watching import Watcher
from multilane import Admin, TopicPartition
from multilane.clock import SystemClock
from multilane.errors import MultilaneError
from multilane.testing.events import Committed, Copied, Ended, Event, Produced, RecordPlace, Skipped, Started, in_order
from multilane.testing.guarantees import (
    AtLeastOnce,
    Guarantee,
    NoCommitPastUnsettled,
    NoDuplicateWithoutRestart,
    NoSameKeyOverlap,
    PerKeyOrder,
    Violation,
    violations,
)

_PATIENCE = 150.0  # with Spark every member has a JVM to start
_PAUSE = 0.1  # between two looks: brokers and members have work to do, too


def guarantees_for(case: Case) -> list[Guarantee]:
    across = case.keeps_order_across
    return [
        AtLeastOnce(),
        PerKeyOrder(across_topics=across),
        NoCommitPastUnsettled(),
        NoSameKeyOverlap(across_topics=across),
        NoDuplicateWithoutRestart(across_topics=across),
    ]


class Run:
    def __init__(self, engine: Engine, bootstrap: str, cases: Sequence[Case]) -> None:
        self.cases = {case.name: replace(case, keys={**case.keys, **engine.keys}) for case in cases}
        self.members: dict[str, Member] = {}
        self.events: dict[str, list[Event]] = {case.name: [] for case in cases}
        self._engine = engine
        self._bootstrap = bootstrap
        self._clock = SystemClock()
        self._admin = Admin({"bootstrap.servers": bootstrap})
        across = {topic: 2 for case in self.cases.values() if (topic := topic_across(case)) is not None}
        self._admin.create_topics({topic: many for case in cases for topic, many in case.topics.items()} | across)
        self._producer = new_producer(bootstrap, linger_ms=5, enable_idempotence=True)  # or retries change the order
        self._watcher = Watcher(bootstrap, cases)

    def close(self) -> None:
        self._watcher.close()
        self._admin.close()

    # --- what is done ------------------------------------------------------------------------------------------------

    def start(self, *names: str) -> None:
        for name in names:
            self.members[name] = self._engine.start(name, self._bootstrap, list(self.cases.values()))

    def stop(self, *names: str) -> None:
        for name in names:
            self.members[name].stop()

    def kill(self, name: str) -> None:
        self.members[name].kill()

    def produce(self, items: Iterable[tuple[Case, Item]]) -> None:
        written: list[tuple[Case, Item, list[Row]]] = []
        for case, item in items:
            content = Content(item.order.value(), None if item.key is None else item.key.encode())
            rows = send(self._producer, case.name, [content], partition=item.partition, flush=False)
            written.append((case, item, rows))
        assert self._producer.flush(30) == 0
        at = self._clock.monotonic()
        for case, item, (row,) in written:
            place = RecordPlace(case.name, row.partition, row.offset)
            # Members may be at it already: it is known to be there from the moment it was asked for.
            self.events[case.name].append(Produced(at - 30.0, str(item.order.number), item.key, place))

    def look(self) -> None:
        """What the members and the brokers tell by now."""
        seen = self._watcher.look()
        for member in self.members.values():
            for name, some in member.news().items():
                self.events.setdefault(name, []).extend(some)
        for name, some in seen.items():
            self.events[name] += some

    def look_until(self, condition: Callable[[], object], timeout: float = _PATIENCE) -> None:
        deadline = self._clock.monotonic() + timeout
        self.look()
        while not condition():
            assert self._clock.monotonic() < deadline, f"not within {timeout} s\n{self._state()}"
            threading.Event().wait(_PAUSE)
            self.look()

    def finish(self) -> None:
        """Until all is settled and committed; then every member that lives is stopped."""
        self.look_until(self.is_settled)
        alive = [m for m in self.members.values() if getattr(m, "running", True)]
        for member in alive:
            member.stop()
        self.look()

    def now(self) -> float:
        return self._clock.monotonic()

    # --- what is known -----------------------------------------------------------------------------------------------

    def is_shared(self) -> bool:
        """Every member that lives has partitions of every group."""
        try:
            groups = self._admin.describe_groups([case.group for case in self.cases.values()])
        except MultilaneError:  # one of them is not there yet
            return False
        held = [[len(member.assignment or ()) for member in group.members] for group in groups.values()]
        alive = sum(getattr(member, "running", True) for member in self.members.values())
        return all(len(many) == alive and all(many) for many in held)

    def is_settled(self) -> bool:
        return not self.unsettled()

    def unsettled(self) -> dict[TopicPartition, tuple[int, int]]:
        """Committed and end offset of every partition where they differ."""
        found: dict[TopicPartition, tuple[int, int]] = {}
        for case in self.cases.values():
            committed = self._watcher.committed(case)
            ends = self._watcher.ends(case)
            found |= {p: (committed.get(p, 0), end) for p, end in ends.items() if committed.get(p, 0) < end}
        return found

    def committed(self, case: Case) -> dict[tuple[str, int], int]:
        """As far as was seen."""
        return {(p.topic, p.partition): offset for p, offset in self._watcher.committed(case).items() if offset}

    def told(self, case: Case | str) -> list[Event]:
        return in_order(self.events[case if isinstance(case, str) else case.name])

    def started(self, case: Case | str, member: str = "") -> list[Started]:
        return [e for e in self.told(case) if isinstance(e, Started) and (not member or e.member == member)]

    def done(self, case: Case | str) -> set[str]:
        """Records that succeeded, were passed over, or are in the error topic."""
        told = self.events[case if isinstance(case, str) else case.name]
        return {
            e.record
            for e in told
            if isinstance(e, Skipped) or (isinstance(e, Ended) and e.is_ok) or (isinstance(e, Copied) and e.is_final)
        }

    def violations(self, case: Case | str) -> list[Violation]:
        case = self.cases[case] if isinstance(case, str) else case
        return violations(self.told(case), guarantees_for(case)) + self._violations_beside(case)

    def _violations_beside(self, case: Case) -> list[Violation]:
        """Of the trigger that shares its group, if there is one: it handles the same records, and fails with none."""
        name = name_beside(case.name)
        if name not in self.events:
            return []
        own = [e for e in self.events[case.name] if not isinstance(e, Started | Ended | Skipped | Copied)]
        own = [e for e in own if not isinstance(e, Committed) or e.topic == case.name]
        found = violations(in_order(own, self.events[name]), guarantees_for(replace(case, mode="none")))
        return [replace(violation, text=f"{name}: {violation.text}") for violation in found]

    def judged(self) -> dict[str, list[str]]:
        """What is wrong with which case, the first of it."""
        found = {name: [str(violation) for violation in self.violations(name)][:5] for name in self.cases}
        return {name: some for name, some in found.items() if some}

    def in_work(self, member: str) -> list[Started]:
        """What a member had begun and never ended."""
        open_: dict[tuple[int, RecordPlace, str], Started] = {}
        for name, told in self.events.items():
            for event in told:
                if isinstance(event, Started) and event.member == member:
                    open_[event.call, event.place, name] = event
                elif isinstance(event, Ended) and event.member == member:
                    open_.pop((event.call, event.place, name), None)
        return list(open_.values())

    def _state(self) -> str:
        lines = [f"{p}: committed {c}, end {e}" for p, (c, e) in sorted(self.unsettled().items())]
        for name, member in self.members.items():
            tail = getattr(member, "tail", lambda: "")()
            lines.append(f"--- {name} (running: {getattr(member, 'running', '?')})\n{tail}")
        return "\n".join(lines)


def by_case(cases: Iterable[Case], items: Callable[[Case], Iterable[Item]]) -> list[list[tuple[Case, Item]]]:
    """The items of all cases side by side: the first of each, the second of each, ..."""
    rows: dict[int, list[tuple[Case, Item]]] = defaultdict(list)
    for case in cases:
        for at, item in enumerate(items(case)):
            rows[at].append((case, item))
    return list(rows.values())
