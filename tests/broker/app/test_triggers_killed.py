"""A member that is killed (SIGKILL) at each step of a trigger's way out of the shared read and back.

All members run side by side, each with a topic and a group of its own; a second member takes over from each. Every
trigger is judged by itself: its records, its order, its named position, and the offset that all of them share.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import uuid
from collections import defaultdict
from pathlib import Path

import pytest

from broker.app import trigger_member
from broker.produce import Content, new_producer, send
from broker.timers import SHORT_SESSIONS
from multilane import Admin
from multilane.clock import SystemClock
from multilane.commit import completion_map
from multilane.dev.kafka import KafkaCluster
from multilane.errors import MultilaneError
from multilane.testing.events import Committed, Ended, Killed, Left, Produced, RecordPlace, Started, in_order
from multilane.testing.guarantees import (
    AtLeastOnce,
    NoCommitPastUnsettled,
    NoDuplicateWithoutRestart,
    NoSameKeyOverlap,
    PerKeyOrder,
    violations,
)
from multilane.testing.journal import JournalReader

pytestmark = [pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(240)]

STEPS = {
    "before it is detached": 1,
    "it is detached": 1,
    "its reader has partitions": 1,
    "a block was read for it alone": 2,
    "its reader has polled": 3,
    "a commit while it is detached": 4,
    "it has caught up": 1,
    "its reader has let go": 1,
    "a shared block after its return": 1,
    "a commit after its return": 1,
}
PARTITIONS = 2
FIRST = 800  # records that are there before the first member
SLICE = 10  # records that arrive at a time
LAST = 15 * SLICE  # that arrive after the kill
_CLOCK = SystemClock()
_PATIENCE = 90.0


class Lives:
    """Two members, one after the other, and what they and the broker report about each trigger."""

    def __init__(self, step: str, bootstrap: str, admin: Admin, folder: Path) -> None:
        self.step = step
        self.topic = f"killed-{uuid.uuid4().hex[:8]}"
        self.group = f"{self.topic}.group"
        self.events = {name: [] for name in trigger_member.SECONDS}
        self.commits = {name: [] for name in trigger_member.SECONDS}  # the offset that the triggers share
        self.produced = 0
        self.left = LAST
        self._admin = admin
        self._folder = folder / self.topic
        self._folder.mkdir()
        self._journal = self._folder / "journal"
        self._reader = JournalReader(self._journal)
        self._known = {}
        self._processes = []
        admin.create_topics({self.topic: PARTITIONS})
        consumer = {
            "groupId": self.group,
            "name": self.topic,
            "cluster": "main",
            "sharing": "same-topic",
            "offsetInitial": "oldest",
            "commitInterval": "50ms",
            "sessionTimeout": "3s",
            "heartbeatInterval": "300ms",
            "group.protocol": "classic",
            "detachAfter": {"records": 20, "time": "10s", "bytes": "16mb"},
            "virtualPartitionChanCount": 1,
        }
        lanes = {"quick": 8, "slow": 2}
        self._configuration = self._folder / "multilane.yaml"
        self._configuration.write_text(
            json.dumps(
                {
                    "clusters": {"main": {"clientId": "killed", "brokers": bootstrap}},
                    "consumers": {name: consumer | {"virtualPartitionCount": lanes[name]} for name in lanes},
                }
            )
        )

    def produce(self, producer, count: int) -> None:
        for number in range(self.produced, self.produced + count):
            key = f"k{number % 20}"
            [row] = send(
                producer, self.topic, [Content(b"%d" % number, key.encode())], partition=number % 20 % PARTITIONS
            )
            place = RecordPlace(self.topic, row.partition, row.offset)
            for events in self.events.values():
                # It is known to be there from the moment it was asked for: a member may have begun it already.
                events.append(Produced(_CLOCK.monotonic() - 30.0, str(number), key, place))
        self.produced += count

    def start(self, name: str, *step: str) -> None:
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [
                sys.executable,
                os.fspath(Path(trigger_member.__file__)),
                name,
                self._configuration,
                self._journal,
            ]
            self._processes.append(subprocess.Popen([*command, *step], stdout=log, stderr=log))

    @property
    def ended(self) -> int | None:
        return self._processes[-1].poll()

    def take_over(self) -> None:
        self._ended(Killed(_CLOCK.monotonic(), "first"))
        self.start("second")

    def stop(self) -> None:
        self._processes[-1].terminate()
        assert self._processes[-1].wait(60) == 0, self.logs()
        self._ended(Left(_CLOCK.monotonic(), "second"))

    def put_away(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                process.kill()
                process.wait(60)

    def _ended(self, event) -> None:
        for events in self.events.values():
            events.append(event)

    def look(self) -> None:
        """Commits first: what they claim was reported before."""
        try:
            found = self._admin.group_offsets(self.group)
        except MultilaneError:  # the group does not exist yet
            found = {}
        for trigger, some in self._reader.news().items():
            self.events[trigger] += some
        at = _CLOCK.monotonic()
        for partition, commit in found.items():
            if self._known.get(partition) == commit:
                continue
            self._known[partition] = commit
            text = completion_map.read(commit.metadata, commit.offset)
            for trigger, position in text.positions.items():
                self.events[trigger].append(Committed(at, *partition, position.offset, position.runs))
            for commits in self.commits.values():
                commits.append(Committed(at, *partition, commit.offset, text.runs))

    def has_handled_all(self, trigger: str) -> bool:
        return len({e.record for e in self.events[trigger] if isinstance(e, Ended)}) == self.produced

    def is_over(self) -> bool:
        return self.left == 0 and sum(commit.offset for commit in self._known.values()) == self.produced

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self._folder.glob("*.log")))


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    with (
        KafkaCluster(properties=SHORT_SESSIONS) as kafka,
        Admin({"bootstrap.servers": kafka.bootstrap()}) as admin,
    ):
        folder = tmp_path_factory.mktemp("killed")
        every = [Lives(step, kafka.bootstrap(), admin, folder) for step in STEPS]
        try:
            _run(every, new_producer(kafka.bootstrap(), linger_ms=0, enable_idempotence=True))
            yield {one.step: one for one in every}
        finally:
            for one in every:
                one.put_away()


def _run(every: list[Lives], producer) -> None:
    for one in every:
        one.produce(producer, FIRST)
        one.start("first", one.step, str(STEPS[one.step]))
    killed: set[Lives] = set()
    deadline = _CLOCK.monotonic() + _PATIENCE
    while unfinished := [one for one in every if not one.is_over()]:
        assert _CLOCK.monotonic() < deadline, "\n".join(f"--- {one.step}\n{one.logs()}" for one in unfinished)
        for one in every:
            one.look()
            if one not in killed and one.ended is not None:
                assert one.ended == -9, one.logs()
                killed.add(one)
                one.take_over()
            # A block that comes while one of them is behind; the next ones when it has caught up.
            if one.left and one.has_handled_all("quick" if one.produced == FIRST else "slow"):
                one.produce(producer, SLICE)
                one.left -= SLICE if one in killed else 0
        threading.Event().wait(0.05)
    for one in every:
        one.stop()
        one.look()


@pytest.mark.parametrize("trigger", trigger_member.SECONDS)
@pytest.mark.parametrize("step", STEPS)
def test_no_trigger_loses_or_reorders_anything(lives, step, trigger):
    one = lives[step]
    events = in_order(one.events[trigger])
    guarantees = [
        AtLeastOnce(),
        PerKeyOrder(),
        NoCommitPastUnsettled(),
        NoSameKeyOverlap(),
        NoDuplicateWithoutRestart(),
    ]
    assert [str(violation) for violation in violations(events, guarantees)][:10] == []
    shared = [event for event in events if not isinstance(event, Committed)] + one.commits[trigger]
    assert [str(violation) for violation in violations(in_order(shared), [NoCommitPastUnsettled()])][:10] == []


@pytest.mark.parametrize("step", STEPS)
def test_the_member_was_killed_at_work(lives, step):
    """A kill that comes before or after everything would prove nothing."""
    one = lives[step]
    handled = defaultdict(set)
    for trigger, events in one.events.items():
        handled[trigger] = {e.record for e in events if isinstance(e, Ended) and e.member == "first"}
        assert any(isinstance(e, Started) and e.member == "second" for e in events)
        assert len(handled[trigger]) < one.produced
    assert handled["quick"] > handled["slow"] or step.startswith(("it has caught up", "its reader has let", "a "))
