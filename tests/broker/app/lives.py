"""Members of a group that share triggers, in processes of their own, and what they and the broker report about each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Sequence
from pathlib import Path

from broker.app import trigger_member
from broker.produce import Content, send
from multilane import Admin
from multilane.clock import SystemClock
from multilane.commit import completion_map
from multilane.errors import MultilaneError
from multilane.testing.events import Committed, Ended, Killed, Left, Produced, RecordPlace
from multilane.testing.journal import JournalReader

PARTITIONS = 2
LANES = {"quick": 8, "slow": 2, "extra": 8}
ONE_CHAIN = {"quick": 1, "slow": 1, "extra": 1}  # a partition is handled in its order
_CLOCK = SystemClock()


class Lives:
    """One topic and one group."""

    def __init__(
        self, triggers: Sequence[str], bootstrap: str, admin: Admin, folder: Path, lanes: dict[str, int] | None = None
    ) -> None:
        self.topic = f"lives-{uuid.uuid4().hex[:8]}"
        self.group = f"{self.topic}.group"
        self.events = {name: [] for name in triggers}
        self.commits = {name: [] for name in triggers}  # the offset that all of them share
        self.produced = 0
        self._admin = admin
        self._bootstrap = bootstrap
        self._lanes = lanes or LANES
        self._folder = folder / self.topic
        self._folder.mkdir()
        self._journal = self._folder / "journal"
        self._reader = JournalReader(self._journal)
        self._known = {}
        self._processes = {}
        admin.create_topics({self.topic: PARTITIONS})

    def produce(self, producer, count: int) -> None:
        for number in range(self.produced, self.produced + count):
            at = number % 20
            [row] = send(producer, self.topic, [Content(b"%d" % number, b"k%d" % at)], partition=at % PARTITIONS)
            place = RecordPlace(self.topic, row.partition, row.offset)
            for events in self.events.values():
                # It is known to be there from the moment it was asked for: a member may have begun it already.
                events.append(Produced(_CLOCK.monotonic() - 30.0, str(number), f"k{at}", place))
        self.produced += count

    # --- members -----------------------------------------------------------------------------------------------------

    def start(self, name: str, triggers: Sequence[str], *step: str) -> None:
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
            "orderBy": "partition" if self._lanes is ONE_CHAIN else "key",
        }
        configuration = self._folder / f"{name}.yaml"
        configuration.write_text(
            json.dumps(
                {
                    "clusters": {"main": {"clientId": "lives", "brokers": self._bootstrap}},
                    "consumers": {one: consumer | {"virtualPartitionCount": self._lanes[one]} for one in triggers},
                }
            )
        )
        main = os.fspath(Path(trigger_member.__file__))
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [sys.executable, main, name, os.fspath(configuration), os.fspath(self._journal), *step]
            self._processes[name] = subprocess.Popen(command, stdout=log, stderr=log)

    def ended(self, name: str) -> int | None:
        """Its exit status, if it has ended."""
        return self._processes[name].poll()

    def note_killed(self, name: str) -> None:
        self._note(Killed(_CLOCK.monotonic(), name))

    def kill(self, name: str) -> None:
        self._processes[name].kill()
        self._processes[name].wait(60)
        self.note_killed(name)

    def stop(self, name: str) -> None:
        self._processes[name].terminate()
        assert self._processes[name].wait(60) == 0, self.logs()
        self._note(Left(_CLOCK.monotonic(), name))

    def put_away(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
                process.wait(60)

    def _note(self, event: Killed | Left) -> None:
        for events in self.events.values():
            events.append(event)

    def logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self._folder.glob("*.log")))

    # --- what is known -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Commits are read first: what they claim was reported before."""
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

    @property
    def is_settled(self) -> bool:
        """Whether everything is committed for all triggers."""
        return sum(commit.offset for commit in self._known.values()) == self.produced

    def handled(self, trigger: str, member: str = "") -> set[str]:
        return {e.record for e in self.events[trigger] if isinstance(e, Ended) and member in ("", e.member)}
