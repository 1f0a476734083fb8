"""The network thread: one loop for any number of consumers with the same brokers and credentials.

Thread: network, but for the methods marked `any thread`, which only put events and wake the loop.

Each turn takes the events that came, asks every manager what it wants (a plain `for`), sends it, and waits for the
sockets until the earliest moment anyone named. An exception that nobody expected ends the thread and is told to
everybody: every pending future gets it and every consumer's next poll raises it. Nothing is logged and forgotten.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Final, TypeVar

from multilane.client.agenda import Agenda
from multilane.client.calls import Call, CallManager
from multilane.client.departures import Departures
from multilane.client.events import (
    ApplicationEvent,
    CommitOffsets,
    EventQueue,
    FetchCommitted,
    FindOffsets,
    GroupEvent,
    Leave,
)
from multilane.client.fetch.backend import Backend, BackendContext
from multilane.client.fetch.decoder import DecoderPool, DecodeTask, FrameJob
from multilane.client.fetch.fetching import FetchContext
from multilane.client.fetch.reader import FetchPolicy
from multilane.client.fetch.shared import SharedFetching
from multilane.client.futures import fulfil, refuse
from multilane.client.group.coordinators import CoordinatorListeners, CoordinatorManager
from multilane.client.group.group_client import GroupClient, GroupContext
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.delegate import NetworkDelegate, Reach
from multilane.client.net.login import Login
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER, Poll, then
from multilane.client.net.resolver import Resolver
from multilane.client.net.tls import tls_context
from multilane.client.net.wakeup import Wakeup
from multilane.clock import Clock
from multilane.errors import BrokerError, ClientClosed, ClientFailed, MultilaneError
from multilane.logs import logger
from multilane.metrics.observer import Observer
from multilane.wire.records.decode import DecodeOptions, load_kernels

if TYPE_CHECKING:
    from uuid import UUID

    import numpy as np

    from multilane.client.cluster import Cluster
    from multilane.config.connection import ConnectionConfig

log = logger(__name__)

Asked = TypeVar("Asked", Backend, GroupClient)

_numbers: Final = count(1)
_JOIN_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class Attach:
    backend: Backend
    group_client: GroupClient | None = None


@dataclass(frozen=True, slots=True)
class Detach:
    backend: Backend
    future: Future[None]
    group_client: GroupClient | None = None
    until: float = 0.0  # when its group need not be told any more


@dataclass(frozen=True, slots=True)
class ForBackend:
    backend: Backend
    event: ApplicationEvent


@dataclass(frozen=True, slots=True)
class ForGroupClient:
    group_client: GroupClient
    event: GroupEvent


@dataclass(frozen=True, slots=True)
class CrashThread:
    """A decoder met something unexpected."""

    error: BaseException


NetworkEvent = Attach | Detach | ForBackend | ForGroupClient | Call | CrashThread


class NetworkThread:
    def __init__(self, config: ConnectionConfig, clock: Clock, observer: Observer) -> None:
        number = next(_numbers)
        self._clock = clock
        self._observer = observer
        self._wakeup = Wakeup()
        self._events: EventQueue[NetworkEvent] = EventQueue(self._wakeup)
        self._chores: ThreadPoolExecutor | None = None
        self._number = number
        self._decoders = DecoderPool(f"multilane-decoder-{number}", lambda error: self._events.put(CrashThread(error)))
        self._delegate = NetworkDelegate(config, self._reach(config), self._wakeup, observer)
        backoff = RequestBackoff(config.retry_backoff, config.retry_backoff_max)
        self._metadata = MetadataManager(
            MetadataPolicy(
                config.metadata_max_age, backoff, config.rebootstrap_trigger if config.rebootstrap else NEVER
            ),
            MetadataListeners(
                self._on_cluster,
                self._on_topic_error,
                self._on_metadata_failure,
                self._on_rebootstrap,
                lambda: self._delegate.last_failure,
            ),
        )
        self._calls = CallManager(backoff, lambda: self._delegate.last_failure, self._metadata.request_update)
        self._coordinators = CoordinatorManager(
            backoff,
            CoordinatorListeners(lambda: self._metadata.cluster, self._metadata.request_update, self._on_group_refused),
        )
        self._fetching = SharedFetching(
            self._metadata, FetchContext(self._decode, self._delegate.close_owner, observer)
        )
        self._backends: Agenda[Backend] = Agenda()
        self._group_clients: Agenda[GroupClient] = Agenda()
        self._departures = Departures(self._on_departed)
        self.can_decode = False
        self._stopping = False
        self.failure: ClientFailed | None = None
        self.ended: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, name=f"multilane-network-{number}", daemon=True)

    # --- any thread --------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._decoders.submit(self._load_kernels)
        self._thread.start()

    def stop(self) -> None:
        self._stopping = True
        self._wakeup.ring()

    def put(self, event: NetworkEvent) -> None:
        self._events.put(event)
        if self.failure is not None:  # nobody drains any more; the event may have missed the last word
            self._refuse_events(self.failure)

    def wake(self) -> None:
        self._wakeup.set()

    def surroundings(self) -> BackendContext:
        return BackendContext(
            self._metadata, self._fetching, self._tell, self._clock.wall, self._observer, self._backends.touch
        )

    def group_surroundings(self) -> GroupContext:
        return GroupContext(
            self._metadata,
            self._coordinators,
            self._delegate.close_owner,
            self._group_clients.touch,
            self._observer,
            lambda: self._delegate.last_failure,
        )

    def topic_id(self, topic: str) -> UUID | None:
        """From any thread: pictures of the cluster are never changed."""
        return self._metadata.cluster.topic_id(topic)

    @property
    def trouble(self) -> MultilaneError | None:
        """Why a broker could not be reached, until one can."""
        return self._delegate.last_failure

    def assert_network_thread(self) -> None:
        if threading.current_thread() is not self._thread:
            raise AssertionError("this belongs to the network thread")

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
            self._turn()  # last words: farewells of members for whom nobody waits
            self._shut(ClientClosed("the client was closed"))
        except BaseException as error:  # noqa: BLE001 - fail loudly, whatever it was
            self._fail(error)
        finally:
            fulfil(self.ended, None)

    def _turn(self) -> None:
        self._wakeup.look()
        while (event := self._events.pop()) is not None:  # one by one: if one fails, the others are still there
            self._handle(event)
        wait = self._ask_managers(self._clock.monotonic())
        if not self._wakeup.lie_down() or self._stopping:
            wait = 0.0
        self._delegate.poll(wait, self._clock.monotonic)
        self._wakeup.get_up()

    def _ask_managers(self, now: float) -> float:
        wait = NEVER
        for poll in (self._metadata.poll(now), self._calls.poll(now)):
            wait = min(wait, self._enqueue(poll, now))
        wait = min(wait, self._ask_due(self._backends, now))
        wait = min(wait, self._enqueue(self._fetching.poll(now, can_decode=self.can_decode), now))
        return min(wait, self._ask_group_clients(now))

    def _ask_group_clients(self, now: float) -> float:
        """And where their coordinators are, for which they may just have asked."""
        wait = self._ask_due(self._group_clients, now)
        poll = self._coordinators.poll(now)
        for request in poll.requests:
            then(request, self._group_clients.touch_all)
        return min(wait, self._enqueue(poll, now), self._departures.end(now))

    def _ask_due(self, agenda: Agenda[Asked], now: float) -> float:
        """Those who have something to say, or whose request was answered."""
        for asked in agenda.due(now):
            wait = NEVER
            for poll in asked.poll(now):
                for request in poll.requests:
                    request.client_id = asked.client_id
                    then(request, partial(agenda.touch, asked))
                wait = min(wait, self._enqueue(poll, now))
            agenda.schedule(asked, now + wait)
        return agenda.wait(now)

    def _enqueue(self, poll: Poll, now: float) -> float:
        for request in poll.requests:
            self._delegate.add(request, now)
        return poll.wait

    def _handle(self, event: NetworkEvent) -> None:
        match event:
            case Attach():
                self._backends.add(event.backend)
                self._size_memory()
                if event.group_client is not None:
                    self._group_clients.add(event.group_client)
                    self._coordinators.hold(event.group_client.group)
            case Detach():
                self._detach(event)
            case ForBackend():
                event.backend.apply(event.event)
                self._backends.touch(event.backend)
            case ForGroupClient():
                event.group_client.apply(event.event, self._clock.monotonic())
                self._group_clients.touch(event.group_client)
            case Call():
                self._calls.add(event)
            case CrashThread():
                raise event.error

    def _detach(self, event: Detach) -> None:
        event.backend.close()
        self._backends.remove(event.backend)
        self._size_memory()
        if event.group_client is None:
            fulfil(event.future, None)
        else:
            self._departures.begin(event.group_client, event.until, event.future, self._clock.monotonic())
            self._group_clients.touch(event.group_client)

    def _on_departed(self, group_client: GroupClient) -> None:
        self._group_clients.remove(group_client)
        self._coordinators.release(group_client.group)

    def _size_memory(self) -> None:
        """As much may lie idle as may be in use."""
        self._delegate.memory.keep_bytes = max((backend.buffer.limit for backend in self._backends), default=0)

    # --- the end -----------------------------------------------------------------------------------------------------

    def _fail(self, cause: BaseException) -> None:
        failure = ClientFailed(f"the network thread failed: {type(cause).__name__}: {cause}")
        failure.__cause__ = cause
        log.critical("multilane's network thread failed", exc_info=cause)
        self.failure = failure
        self._shut(failure)

    def _shut(self, reason: MultilaneError) -> None:
        self._delegate.abort(reason, self._clock.monotonic())
        for backend in self._backends:
            backend.fail(reason)
            backend.close(reason)
        for group_client in self._group_clients:
            group_client.close(reason)
        self._departures.abandon()
        self._calls.abandon(reason)
        self._refuse_events(reason)
        self._delegate.close()
        self._decoders.close()
        self._decoders.join(_JOIN_SECONDS)
        if self._chores is not None:
            self._chores.shutdown(wait=False, cancel_futures=True)
        self._wakeup.close()

    def _refuse_events(self, reason: MultilaneError) -> None:
        for event in self._events.drain():
            match event:
                case Attach():
                    event.backend.fail(reason)
                case Detach():
                    fulfil(event.future, None)
                case Call():
                    refuse(event.future, reason)
                case ForBackend(event=FindOffsets() as asked):
                    refuse(asked.future, reason)
                case ForGroupClient(event=CommitOffsets() as commit):
                    refuse(commit.future, reason)
                case ForGroupClient(event=FetchCommitted() as question):
                    refuse(question.future, reason)
                case ForGroupClient(event=Leave() as leave):
                    fulfil(leave.future, None)
                case _:
                    pass

    # --- what the parts tell each other ------------------------------------------------------------------------------

    def _on_cluster(self, cluster: Cluster) -> None:
        now = self._clock.monotonic()
        self._delegate.on_nodes(dict(cluster.nodes), now)
        for backend in self._backends:
            backend.on_cluster(cluster)
        self._backends.touch_all()
        for group_client in self._group_clients:
            group_client.on_cluster(cluster, now)
        self._group_clients.touch_all()

    def _on_topic_error(self, topic: str, error: BrokerError) -> None:
        for backend in self._backends:
            backend.topic_failed(topic, error)
        for group_client in self._group_clients:
            group_client.topic_failed(topic, error)

    def _on_group_refused(self, group: str, error: MultilaneError) -> None:
        for group_client in self._group_clients:
            if group_client.group == group:
                group_client.refused(error)

    def _on_metadata_failure(self, error: MultilaneError) -> None:
        for backend in self._backends:
            backend.refused(error)

    def _on_rebootstrap(self) -> None:
        log.warning("no broker of the cluster answers: starting over from bootstrap.servers")
        self._observer.count("rebootstrap")
        self._delegate.forget_cluster(self._clock.monotonic())

    def _decode(self, frame: np.ndarray, tasks: list[DecodeTask], policy: FetchPolicy) -> None:
        options = DecodeOptions(
            check_crc=policy.check_crcs,
            read_committed=policy.kind.read_committed,
            max_decompressed_bytes=policy.max_decompressed_bytes,
            memory=self._delegate.memory.take,
        )
        job = FrameJob(frame, tasks, options)
        (self._decoders.run if job.is_quick else self._decoders.submit)(job)

    def _tell(self, backend: Backend, event: ApplicationEvent) -> None:
        self._events.put(ForBackend(backend, event))

    def _load_kernels(self) -> None:
        began = self._clock.monotonic()
        load_kernels()
        log.info("the decoder is loaded, after %.1f s", self._clock.monotonic() - began)
        self.can_decode = True
        self._wakeup.set()

    def _reach(self, config: ConnectionConfig) -> Reach:
        security = config.security
        login = None
        if security.sasl is not None:
            login = Login(security.sasl, self._chore_pool, self._clock.wall, self._wakeup.set)
        return Reach(
            Resolver(self._chore_pool, self._wakeup.set, self._clock.monotonic),
            None if security.tls is None else tls_context(security.tls),
            login,
        )

    def _chore_pool(self) -> Executor:
        """For what may block: name servers and token functions. Made when first needed."""
        if self._chores is None:
            self._chores = ThreadPoolExecutor(2, thread_name_prefix=f"multilane-chores-{self._number}")
        return self._chores
