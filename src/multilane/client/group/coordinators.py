"""Finds out which broker coordinates each group.

Thread: none (pure state machine); owned by the network thread and shared by all consumers on it.

Owns the known coordinators. Managers that need one call `of` until it returns a broker; a group is looked up only while
there are such calls. A group stays known until the last consumer that holds it has released it, because the others
still have to commit and to leave. All groups that are looked up at the same time share one request, to any broker. Must
be polled after the managers that call `of`, in the same turn of the loop; they are polled again when an answer arrives
and when the cluster metadata changes.

A coordinator that is missing from the cluster metadata cannot be connected to: the metadata is refreshed, and the
answer is held back until the broker is known. Each refusal is reported, and the next attempt comes after a long delay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from multilane.client.net.request_state import RequestBackoff, RequestState
from multilane.client.net.requests import NEVER, NOTHING, Poll, UnsentRequest
from multilane.errors import (
    AuthenticationError,
    ClientClosed,
    ClientFailed,
    GroupRefused,
    MultilaneError,
    NetworkError,
    UnsupportedVersion,
    broker_error,
)
from multilane.logs import logger
from multilane.types import NodeId
from multilane.wire.compose_groups import (
    COORDINATORS_TOGETHER,
    FIND_COORDINATOR_AT_LEAST,
    find_coordinators_request,
)
from multilane.wire.messages import ApiKey

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster

log = logger(__name__)

_REFUSED_AT_LEAST: Final = 2.0
_REFUSED_AT_MOST: Final = 60.0


@dataclass(frozen=True, slots=True)
class CoordinatorListeners:
    """Callbacks of the manager; all are called on the network thread."""

    cluster: Callable[[], Cluster]
    refresh: Callable[[], None]
    refused: Callable[[str, MultilaneError], None]  # a refused group: retrying does not help until something is changed


@dataclass(slots=True, eq=False)
class _Search:
    """The lookup of one group."""

    group: str
    state: RequestState
    node: NodeId | None = None
    alone: bool = False  # looked up alone, because a shared request failed in a way that this group may have caused
    refusals: int = 0
    error: MultilaneError | None = None


@dataclass(slots=True, eq=False)
class _CoordinatorRequest:
    """One request. Its version decides which of the searches it really covers (`asked`)."""

    searches: Sequence[_Search]
    asked: Sequence[_Search]


class CoordinatorManager:
    def __init__(self, backoff: RequestBackoff, listeners: CoordinatorListeners) -> None:
        self._backoff = backoff
        self._slow = RequestBackoff(
            max(_REFUSED_AT_LEAST, backoff.maximum),
            max(_REFUSED_AT_MOST, backoff.maximum),
            backoff.jitter,
            backoff.draw,
        )
        self._listeners = listeners
        self._searches: dict[str, _Search] = {}
        self._holders: Counter[str] = Counter()
        self._wanted: dict[str, _Search] = {}  # requested since their last lookup
        self._one_by_one = False  # the last broker was too old for several groups per request

    def of(self, group: str) -> NodeId | None:
        search = self._searches.get(group)
        if search is None:
            search = self._searches[group] = _Search(group, RequestState(self._backoff))
        if self._is_known(search):
            return search.node
        self._wanted[group] = search
        return None

    def forget(self, group: str, node: NodeId) -> None:
        """This broker is not, or no longer, the coordinator. A coordinator found since is kept."""
        search = self._searches.get(group)
        if search is not None and search.node == node:
            log.info("group %s: broker %s is no longer its coordinator; looking it up again", group, node)
            search.node = None

    def last_error(self, group: str) -> MultilaneError | None:
        """The error of this group's last lookup; None once it is found."""
        search = self._searches.get(group)
        return None if search is None or self._is_known(search) else search.error

    def hold(self, group: str) -> None:
        """Adds a consumer of this group. Each consumer releases it once."""
        self._holders[group] += 1

    def release(self, group: str) -> None:
        """Removes a consumer of this group. With the last one the group is forgotten."""
        self._holders[group] -= 1
        if self._holders[group] > 0:
            return
        del self._holders[group]
        self._searches.pop(group, None)
        self._wanted.pop(group, None)

    def poll(self, now: float) -> Poll:
        self._wanted = {group: search for group, search in self._wanted.items() if not self._is_known(search)}
        looking = list(self._wanted.values())
        if not looking:
            return NOTHING
        ready = [s for s in looking if s.state.may_send(now)]
        requests = tuple(self._request(searches) for searches in self._portions(ready))
        return Poll(requests, min((s.state.wait(now) for s in looking), default=NEVER))

    def _is_known(self, search: _Search) -> bool:
        return search.node is not None and search.node in self._listeners.cluster().nodes

    def _portions(self, ready: Sequence[_Search]) -> Iterable[list[_Search]]:
        together = [] if self._one_by_one else [s for s in ready if not s.alone]
        if together:
            yield together
        for search in ready:
            if self._one_by_one or search.alone:
                yield [search]

    # --- requests ----------------------------------------------------------------------------------------------------

    def _request(self, searches: list[_Search]) -> UnsentRequest:
        for search in searches:
            search.state.sent()
            self._wanted.pop(search.group, None)
        request = _CoordinatorRequest(searches, searches)
        return UnsentRequest(
            api=ApiKey.FIND_COORDINATOR,
            build=lambda version: self._build(request, version),
            on_response=lambda response, now: self._on_response(request, response, now),
            on_failure=lambda error, now: self._on_failure(request, error, now),
            at_least=FIND_COORDINATOR_AT_LEAST,
        )

    def _build(self, request: _CoordinatorRequest, version: int) -> Any:
        self._one_by_one = version < COORDINATORS_TOGETHER
        if self._one_by_one:
            request.asked = request.searches[:1]
        return find_coordinators_request(version, [s.group for s in request.asked])

    def _on_response(self, request: _CoordinatorRequest, response: Any, now: float) -> None:
        if hasattr(response, "coordinators"):
            answers = {str(c.key): c for c in response.coordinators}
        else:
            answers = {request.asked[0].group: response}
        for search in request.searches:
            if search not in request.asked:
                self._ask_later(search)
            elif search.group in answers:
                self._answered(search, answers[search.group], now)
            else:
                self._retry(search, NetworkError(f"the answer to FindCoordinator lacks group {search.group}"), now)

    def _answered(self, search: _Search, answer: Any, now: float) -> None:
        code = int(answer.error_code)
        if code:
            error = broker_error(code, f"FindCoordinator of group {search.group}", answer.error_message)
            if error.retriable:
                self._retry(search, error, now)
            else:
                self._refused(search, GroupRefused(f"{error}. {_advice(code)}"), now)
            return
        search.node = NodeId(int(answer.node_id))
        search.refusals = 0
        search.alone = False
        if self._is_known(search):
            search.error = None
            search.state.succeeded()
            log.info("group %s is coordinated by broker %s", search.group, search.node)
        else:
            what = f"broker {search.node} coordinates {search.group}, but is missing from the cluster metadata"
            self._retry(search, NetworkError(what), now)
            self._listeners.refresh()

    # --- failures ----------------------------------------------------------------------------------------------------

    def _on_failure(self, request: _CoordinatorRequest, error: MultilaneError, now: float) -> None:
        if isinstance(error, ClientClosed | ClientFailed):
            return  # the network thread ends and reports that itself
        login_refused = isinstance(error, AuthenticationError)
        all_refused = login_refused or isinstance(error, UnsupportedVersion)
        blamed = request.searches if all_refused else request.asked
        for search in request.searches:
            if error.retriable and not login_refused:
                self._retry(search, error, now)
            elif search in blamed and (all_refused or len(blamed) == 1):
                self._refused(search, error, now)
            else:  # one group that cannot be looked up must not block the others
                search.alone = search in blamed
                self._ask_later(search)

    def _ask_later(self, search: _Search) -> None:
        """This group did not fail; it is still to be looked up."""
        search.state.succeeded()
        if self._searches.get(search.group) is search:
            self._wanted[search.group] = search

    def _retry(self, search: _Search, error: MultilaneError, now: float) -> None:
        search.error = error
        search.state.failed(now)

    def _refused(self, search: _Search, error: MultilaneError, now: float) -> None:
        search.error = error
        search.refusals += 1
        search.state.failed(now)
        search.state.rest_until(now + self._slow.delay(search.refusals))
        if self._searches.get(search.group) is search:
            log.error("group %s: %s", search.group, error)
            self._listeners.refused(search.group, error)


def _advice(code: int) -> str:
    if code == 30:
        return "Grant READ on the group to this client, or use another group.id"
    if code == 24:
        return "group.id must not be empty"
    return "The lookup is retried after a while"
