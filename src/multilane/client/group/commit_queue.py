"""Commits without a final answer, in the order of the calls.

Thread: none (pure); owned by a `CommitManager` on the network thread.

Owns the order: a future is completed after those of all earlier calls, unless it expires. Owns the latest offset for
each open partition too, which outlives the call that brought it. If an earlier call were retried with its own offset
after a later one had been accepted and its answer lost, the group's offset would go back.

A turn of the loop costs nothing here while nothing changes, however many commits wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from uuid import UUID

from multilane.client.futures import fulfil, refuse
from multilane.client.group.coordinator_requests import timeout_cause
from multilane.client.net.requests import NEVER
from multilane.errors import MultilaneError, OperationTimeout
from multilane.types import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(slots=True, eq=False)
class Commit:
    """One call. `open` holds partitions without a final answer, `refusals` the errors of those not committed."""

    open: set[TopicPartition]
    future: Future[None]
    deadline: float
    member_id: str  # on whose behalf
    ids: Mapping[str, UUID]  # topic ids at the time of the call
    refusals: dict[TopicPartition, MultilaneError] = field(default_factory=dict)
    lost: dict[TopicPartition, str] = field(default_factory=dict)  # not to be sent (again), with the reason
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
        self._latest: dict[TopicPartition, OffsetAndMetadata] = {}
        self.next_deadline = NEVER  # no deadline is before this one

    def __len__(self) -> int:
        return len(self._commits)

    def __iter__(self) -> Iterator[Commit]:
        return iter(self._commits)

    def __reversed__(self) -> Iterator[Commit]:
        return reversed(self._commits)

    def add(self, commit: Commit, offsets: Offsets) -> None:
        self._commits.append(commit)
        self._latest.update(offsets)
        self.next_deadline = min(self.next_deadline, commit.deadline)

    def open_commits(self) -> tuple[Commit, ...]:
        return tuple(commit for commit in self._commits if commit.open)

    def latest_offsets(self, commits: Iterable[Commit]) -> dict[TopicPartition, OffsetAndMetadata]:
        """The offsets to send for these commits: for each open partition the latest one."""
        return {tp: self._latest[tp] for tp in sorted(set().union(*(commit.open for commit in commits)))}

    def settle(self) -> None:
        """Completes answered commits, up to the first unanswered one."""
        before = len(self._commits)
        while self._commits and not self._commits[0].open:
            _complete(self._commits.popleft())
        if len(self._commits) != before:
            self._prune()

    def expire(self, now: float, coordinator_error: Callable[[], MultilaneError | None] = lambda: None) -> None:
        if now < self.next_deadline:
            return
        for commit in [c for c in self._commits if now >= c.deadline]:
            self._commits.remove(commit)
            cause = timeout_cause(commit.last_error, coordinator_error)
            text = f"group {self._group}: {some(sorted(commit.open))}: the commit timed out: {cause}"
            for partition in list(commit.open):
                commit.refuse(partition, OperationTimeout(text))
            _complete(commit)
        self.next_deadline = min((c.deadline for c in self._commits), default=NEVER)
        self._prune()

    def abandon(self, error: MultilaneError) -> None:
        commits, self._commits = self._commits, deque()
        self._prune()
        for commit in commits:
            refuse(commit.future, error)

    def _prune(self) -> None:
        wanted: set[TopicPartition] = set().union(*(commit.open for commit in self._commits))
        self._latest = {tp: offset for tp, offset in self._latest.items() if tp in wanted}


def some(partitions: Iterable[TopicPartition]) -> str:
    """Lists a few partitions by name and counts the rest."""
    names = [str(p) for p in partitions]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _complete(commit: Commit) -> None:
    if commit.refusals:
        refuse(commit.future, _summary(commit.refusals))
    else:
        fulfil(commit.future, None)


def _summary(refusals: Mapping[TopicPartition, MultilaneError]) -> MultilaneError:
    """The most severe refusal, which names its partition; a note lists the other partitions."""
    worst = max(sorted(refusals), key=lambda tp: (refusals[tp].fatal, not refusals[tp].retriable))
    error = refusals[worst]
    note = f"not committed either: {some(sorted(set(refusals) - {worst}))}"
    if len(refusals) > 1 and note not in getattr(error, "__notes__", ()):  # other commits may have the same error
        error.add_note(note)
    return error
