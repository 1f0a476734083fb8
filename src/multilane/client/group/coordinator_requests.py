"""Requests for a group's offsets: the lookup of the coordinator, one request in flight, the back-off after a failure.

Thread: none (pure state machine); each instance belongs to a manager on the network thread.

Commits and committed offsets go to the same coordinator in the same way. Their managers decide what a request contains
and what an answer means for their callers. This module decides when a request may leave, and what a failure says about
the coordinator and the cluster metadata.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from multilane.client.net.request_state import RequestBackoff, RequestState
from multilane.client.net.requests import Poll, UnsentRequest
from multilane.errors import MultilaneError
from multilane.logs import logger
from multilane.types import NodeId, TopicPartition
from multilane.wire.compose_offsets import OFFSETS_BY_NAME_AT_MOST

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.group.membership import Coordinators

log = logger(__name__)

_NO_ANSWER: Final = "the coordinator is unknown or does not answer"


def topic_ids(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[str, UUID]:
    """The ids of their topics, as far as they are known."""
    return {tp.topic: id_ for tp in partitions if (id_ := cluster.topic_id(tp.topic)) is not None}


def timeout_cause(
    last_error: MultilaneError | None, coordinator_error: Callable[[], MultilaneError | None]
) -> MultilaneError | str:
    """Why a call had no answer before its deadline."""
    return last_error or coordinator_error() or _NO_ANSWER


@dataclass(frozen=True, slots=True, eq=False)
class OffsetsBatch:
    """A request in flight: the broker that it went to, and the topic ids that it contains."""

    node: NodeId
    ids: Mapping[str, UUID]

    @property
    def topics(self) -> dict[UUID, str]:
        """The names of the topics by id, for the answer."""
        return {id_: topic for topic, id_ in self.ids.items()}

    def at_most(self, partitions: Iterable[TopicPartition]) -> int | None:
        """The newest version that can name these partitions. Later versions need the ids of all topics."""
        return None if all(tp.topic in self.ids for tp in partitions) else OFFSETS_BY_NAME_AT_MOST


class CoordinatorRequests:
    """Requests of one kind to the coordinator of one group."""

    def __init__(
        self,
        group: str,
        coordinators: Coordinators,
        backoff: RequestBackoff,
        refresh: Callable[[], None],
        failure: str,
    ) -> None:
        """`failure` is the log's word for one."""
        self._group = group
        self._coordinators = coordinators
        self._refresh = refresh
        self._failure = failure
        self._state = RequestState(backoff)
        self._last_error: MultilaneError | None = None

    @property
    def in_flight(self) -> bool:
        return self._state.in_flight

    @property
    def last_error(self) -> MultilaneError | None:
        """The latest failure; None if the latest request succeeded."""
        return self._last_error if self._state.failures else None

    def next_requests(
        self, now: float, deadline: float, request: Callable[[NodeId], UnsentRequest], *, is_paused: bool = False
    ) -> Poll:
        """Send a request if one may leave. `deadline`: when the first caller gives up. While requests are paused, the
        coordinator is looked up and nothing is sent."""
        patience = max(0.0, deadline - now)
        if not self._state.may_send(now):
            return Poll(wait=min(patience, self._state.wait(now)))
        node = self._coordinators.of(self._group)
        if node is None or is_paused:
            return Poll(wait=patience)
        unsent = request(node)
        self._state.sent()
        return Poll((unsent,), patience)

    def answered(self, passing: Sequence[MultilaneError | None], now: float) -> None:
        """`passing`: errors of the answer that a retry may mend."""
        if passing:
            self._failed(passing[0], now)
        else:
            self._state.succeeded()

    def moved(self, batch: OffsetsBatch) -> None:
        """The broker is not the coordinator any more."""
        self._coordinators.forget(self._group, batch.node)

    def unanswered(self, batch: OffsetsBatch, error: MultilaneError, now: float) -> None:
        self._failed(error, now)
        if error.retriable:
            self.moved(batch)
        if error.refresh_metadata:
            self._refresh()

    def _failed(self, error: MultilaneError | None, now: float) -> None:
        self._last_error = error
        level = logging.WARNING if self._state.failures == 0 else logging.DEBUG  # one warning per outage
        log.log(level, "group %s: %s: %s", self._group, self._failure, error)
        self._state.failed(now)
