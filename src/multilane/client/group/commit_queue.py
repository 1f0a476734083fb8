"""Commits that have no final answer yet, in the order of the calls.

Thread: none (pure); owned by a `CommitManager` on the network thread.

Owns the order: a future is completed after those of all earlier calls, unless its time is over. Owns the last wish for
each open partition too. A wish outlives the call that brought it: were an earlier call sent again with its own offset,
after a later one had been accepted and its answer lost, the group would go back.

A turn of the loop costs nothing here while nothing changes, however many commits wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from uuid import UUID

from multilane.client.futures import fulfil, refuse
from multilane.client.net.requests import NEVER
from multilane.errors import MultilaneError, OperationTimeout
from multilane.types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(slots=True, eq=False)
class Commit:
    """One call. `open` is what has no final answer yet, `refusals` why some of it was not committed."""

    open: set[TopicPartition]
    future: Future[None]
    deadline: float
    member_id: str  # on whose behalf
    ids: Mapping[str, UUID]  # of the topics, as they were when the offsets were read
    refusals: dict[TopicPartition, MultilaneError] = field(default_factory=dict)
    lost: dict[TopicPartition, str] = field(default_factory=dict)  # not to be sent (again), and why
    missing_since: float | None = None
    last_error: MultilaneError | None = None

    def refuse(self, partition: TopicPartition, error: MultilaneError) -> None:
        self.open.discard(partition)
        self.refusals[partition] = error

    def mark_lost(self, partitions: Iterable[TopicPartition], why: str) -> None:
        for partition in partitions:
            self.lost.setdefault(partition, why)


class CommitQueue:
    def __init__(self, group: str) -> None:
        self._group = group
        self._commits: deque[Commit] = deque()
        self._wishes: dict[TopicPartition, OffsetAndMetadata] = {}
        self.soonest = NEVER  # no deadline is before this one

    def __len__(self) -> int:
        return len(self._commits)

    def __iter__(self) -> Iterator[Commit]:
        return iter(self._commits)

    def __reversed__(self) -> Iterator[Commit]:
        return reversed(self._commits)

    def add(self, commit: Commit, offsets: Offsets) -> None:
        self._commits.append(commit)
        self._wishes.update(offsets)
        self.soonest = min(self.soonest, commit.deadline)

    def open_commits(self) -> tuple[Commit, ...]:
        return tuple(commit for commit in self._commits if commit.open)

    def wishes(self, commits: Iterable[Commit]) -> dict[TopicPartition, OffsetAndMetadata]:
        """What is to be sent for these commits: of each open partition what was asked for last."""
        return {tp: self._wishes[tp] for tp in sorted(set().union(*(commit.open for commit in commits)))}

    def settle(self) -> None:
        """Complete what is answered, up to the first that is not."""
        before = len(self._commits)
        while self._commits and not self._commits[0].open:
            _complete(self._commits.popleft())
        if len(self._commits) != before:
            self._tidy()

    def expire(self, now: float, trouble: Callable[[], MultilaneError | None] = lambda: None) -> None:
        if now < self.soonest:
            return
        for commit in [c for c in self._commits if now >= c.deadline]:
            self._commits.remove(commit)
            cause = commit.last_error or trouble() or "the coordinator is unknown or does not answer"
            text = f"group {self._group}: {some(sorted(commit.open))}: no answer to the commit in time: {cause}"
            for partition in list(commit.open):
                commit.refuse(partition, OperationTimeout(text))
            _complete(commit)
        self.soonest = min((c.deadline for c in self._commits), default=NEVER)
        self._tidy()

    def abandon(self, error: MultilaneError) -> None:
        commits, self._commits = self._commits, deque()
        self._tidy()
        for commit in commits:
            refuse(commit.future, error)

    def _tidy(self) -> None:
        wanted: set[TopicPartition] = set().union(*(commit.open for commit in self._commits))
        self._wishes = {tp: offset for tp, offset in self._wishes.items() if tp in wanted}


def some(partitions: Iterable[TopicPartition]) -> str:
    """A few partitions by name, the rest by number."""
    names = [str(p) for p in partitions]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _complete(commit: Commit) -> None:
    if commit.refusals:
        refuse(commit.future, _summary(commit.refusals))
    else:
        fulfil(commit.future, None)


def _summary(refusals: Mapping[TopicPartition, MultilaneError]) -> MultilaneError:
    """The gravest of the refusals, which names its partition; the other partitions are in a note."""
    worst = max(sorted(refusals), key=lambda tp: (refusals[tp].fatal, not refusals[tp].retriable))
    error = refusals[worst]
    note = f"not committed either: {some(sorted(set(refusals) - {worst}))}"
    if len(refusals) > 1 and note not in getattr(error, "__notes__", ()):  # other commits may have the same error
        error.add_note(note)
    return error
