"""The consumers of one network thread: their backends and group clients, polled when they are due.

Thread: network.

Owns who is attached, the coordinators of their groups, and the members that still leave their groups after their
consumers have closed. Tells every consumer what concerns all of them: the cluster metadata, and errors of topics,
groups and the cluster. Never polls a consumer that has nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

from multilane.client.agenda import Agenda
from multilane.client.departures import Departures
from multilane.client.futures import fulfil
from multilane.client.group.coordinators import CoordinatorListeners, CoordinatorManager
from multilane.client.net.requests import RequestManager, UnsentRequest, then

if TYPE_CHECKING:
    from multilane.client.cluster import Cluster
    from multilane.client.fetch.backend import Backend
    from multilane.client.group.group_client import GroupClient
    from multilane.client.metadata import MetadataManager
    from multilane.client.net.frames import FramePool
    from multilane.client.net.request_state import RequestBackoff
    from multilane.client.network_events import Attach, Detach, ForBackend, ForGroupClient
    from multilane.errors import BrokerError, MultilaneError


class ManagerOfConsumer(RequestManager, Protocol):
    @property
    def client_id(self) -> str | None:
        """Names the consumer in its requests; the connection is shared with others."""
        ...


Polled = TypeVar("Polled", bound=ManagerOfConsumer)


class AttachedConsumers:
    def __init__(
        self,
        metadata: MetadataManager,
        backoff: RequestBackoff,
        send: Callable[[UnsentRequest, float], None],
        memory: FramePool,
    ) -> None:
        listeners = CoordinatorListeners(lambda: metadata.cluster, metadata.request_update, self._group_refused)
        self.coordinators = CoordinatorManager(backoff, listeners)
        self._send = send
        self._memory = memory
        self.backends: Agenda[Backend] = Agenda()
        self.group_clients: Agenda[GroupClient] = Agenda()
        self._departures = Departures(self._on_departed)

    # --- coming, going, events ---------------------------------------------------------------------------------------

    def attach(self, event: Attach) -> None:
        self.backends.add(event.backend)
        self._resize_frame_pool()
        if event.group_client is not None:
            self.group_clients.add(event.group_client)
            self.coordinators.hold(event.group_client.group)

    def detach(self, event: Detach, now: float) -> None:
        event.backend.close()
        self.backends.remove(event.backend)
        self._resize_frame_pool()
        if event.group_client is None:
            fulfil(event.future, None)
        else:
            self._departures.begin(event.group_client, event.until, event.future, now)
            self.group_clients.touch(event.group_client)

    def for_backend(self, event: ForBackend) -> None:
        event.backend.apply(event.event)
        self.backends.touch(event.backend)

    def for_group_client(self, event: ForGroupClient, now: float) -> None:
        event.group_client.apply(event.event, now)
        self.group_clients.touch(event.group_client)

    def close(self, reason: MultilaneError) -> None:
        for backend in self.backends:
            backend.fail(reason)
            backend.close(reason)
        for group_client in self.group_clients:
            group_client.close(reason)
        self._departures.abandon()

    def _on_departed(self, group_client: GroupClient) -> None:
        self.group_clients.remove(group_client)
        self.coordinators.release(group_client.group)

    def _resize_frame_pool(self) -> None:
        """The pool may keep as many idle bytes as a consumer may buffer."""
        self._memory.keep_bytes = max((backend.buffer.limit for backend in self.backends), default=0)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def poll_backends(self, now: float) -> float:
        """Sends what they want. Returns the seconds until one of them is due; so do the other two."""
        return self._poll_due(self.backends, now)

    def poll_group_clients(self, now: float) -> float:
        """Also polls for the coordinators that the group clients may just have requested."""
        wait = self._poll_due(self.group_clients, now)
        poll = self.coordinators.poll(now)
        for request in poll.requests:
            then(request, self.group_clients.touch_all)
            self._send(request, now)
        return min(wait, poll.wait, self._departures.end(now))

    def _poll_due(self, agenda: Agenda[Polled], now: float) -> float:
        """Polls the items that are due: scheduled for now, or touched by an event or a response."""
        for polled in agenda.due(now):
            poll = polled.poll(now)
            for request in poll.requests:
                request.client_id = polled.client_id
                then(request, partial(agenda.touch, polled))
                self._send(request, now)
            agenda.schedule(polled, now + poll.wait)
        return agenda.wait(now)

    # --- what concerns all of them -----------------------------------------------------------------------------------

    def on_cluster(self, cluster: Cluster, now: float) -> None:
        for backend in self.backends:
            backend.on_cluster(cluster)
        self.backends.touch_all()
        for group_client in self.group_clients:
            group_client.on_cluster(cluster, now)
        self.group_clients.touch_all()

    def topic_failed(self, topic: str, error: BrokerError) -> None:
        for backend in self.backends:
            backend.topic_failed(topic, error)
        for group_client in self.group_clients:
            group_client.topic_failed(topic, error)

    def _group_refused(self, group: str, error: MultilaneError) -> None:
        for group_client in self.group_clients:
            if group_client.group == group:
                group_client.refused(error)

    def refused(self, error: MultilaneError) -> None:
        """The cluster refuses this client."""
        for backend in self.backends:
            backend.refused(error)
