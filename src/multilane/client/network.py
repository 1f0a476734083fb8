"""The network thread: one loop for any number of consumers with the same brokers and credentials.

Thread: network, except the methods under `any thread`, which only put events and wake the loop.

Each turn handles the queued events, polls every manager (a plain `for`), sends their requests, and waits for the
sockets until the earliest time that a manager returned. An unexpected exception ends the thread: it completes every
pending future, and every consumer's next poll raises it. The thread never logs such an error and carries on.
"""

from __future__ import annotations

import threading
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import count
from typing import TYPE_CHECKING, Final

from multilane.client.attached_consumers import AttachedConsumers
from multilane.client.calls import Call, CallManager
from multilane.client.events import ApplicationEvent, EventQueue
from multilane.client.fetch.backend import Backend, BackendContext
from multilane.client.fetch.decoder import DecoderPool, DecodeTask, FrameJob
from multilane.client.fetch.fetch_requests import FetchContext
from multilane.client.fetch.reader import FetchSettings
from multilane.client.fetch.shared import SharedFetching
from multilane.client.futures import fulfil
from multilane.client.group.group_client import GroupContext
from multilane.client.metadata import MetadataListeners, MetadataManager, MetadataPolicy
from multilane.client.net.delegate import ConnectionSetup, NetworkDelegate
from multilane.client.net.login import Login
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER, Poll, RequestManager, poll_all
from multilane.client.net.resolver import Resolver
from multilane.client.net.tls import tls_context
from multilane.client.net.wakeup import Wakeup
from multilane.client.network_events import (
    Attach,
    CrashThread,
    Detach,
    ForBackend,
    ForGroupClient,
    NetworkEvent,
    refuse_event,
)
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

_numbers: Final = count(1)
_JOIN_SECONDS: Final = 2.0


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
        self._delegate = NetworkDelegate(config, self._connection_setup(config), self._wakeup, observer)
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
        self._fetching = SharedFetching(
            self._metadata, FetchContext(self._decode, self._delegate.close_owner, observer, lambda: self.can_decode)
        )
        self._managers: tuple[RequestManager, ...] = (self._metadata, self._calls)
        self._consumers = AttachedConsumers(self._metadata, backoff, self._delegate.add, self._delegate.memory)
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
        if self.failure is not None:  # the thread has ended and may have missed this event
            self._refuse_events(self.failure)

    def wake(self) -> None:
        self._wakeup.set()

    def backend_context(self) -> BackendContext:
        return BackendContext(
            self._metadata, self._fetching, self._post, self._clock.wall, self._observer, self._consumers.backends.touch
        )

    def group_context(self) -> GroupContext:
        return GroupContext(
            self._metadata,
            self._consumers.coordinators,
            self._delegate.close_owner,
            self._consumers.group_clients.touch,
            self._observer,
            lambda: self._delegate.last_failure,
        )

    @property
    def connection_count(self) -> int:
        """From any thread."""
        return self._delegate.connection_count

    def topic_id(self, topic: str) -> UUID | None:
        """Callable from any thread: `Cluster` objects never change."""
        return self._metadata.cluster.topic_id(topic)

    @property
    def last_failure(self) -> MultilaneError | None:
        """Why a broker was unreachable; None as soon as one is reachable."""
        return self._delegate.last_failure

    def assert_network_thread(self) -> None:
        if threading.current_thread() is not self._thread:
            raise AssertionError("only the network thread may call this")

    # --- the loop ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
            self._turn()  # sends the LeaveGroup requests of consumers that closed without waiting for the response
            self._shut_down(ClientClosed("the client was closed"))
        except BaseException as error:  # noqa: BLE001 - fail loudly, whatever it was
            self._fail(error)
        finally:
            fulfil(self.ended, None)

    def _turn(self) -> None:
        self._wakeup.begin_turn()
        while (event := self._events.pop()) is not None:  # one by one: if one fails, the others stay queued
            self._handle(event)
        wait = self._poll_managers(self._clock.monotonic())
        if not self._wakeup.may_sleep() or self._stopping:
            wait = 0.0
        self._delegate.poll(wait, self._clock.monotonic)
        self._wakeup.awake()

    def _poll_managers(self, now: float) -> float:
        wait = self._enqueue(poll_all(self._managers, now), now)
        wait = min(wait, self._consumers.poll_backends(now))
        wait = min(wait, self._enqueue(self._fetching.poll(now), now))
        return min(wait, self._consumers.poll_group_clients(now))

    def _enqueue(self, poll: Poll, now: float) -> float:
        for request in poll.requests:
            self._delegate.add(request, now)
        return poll.wait

    def _handle(self, event: NetworkEvent) -> None:
        match event:
            case Attach():
                self._consumers.attach(event)
            case Detach():
                self._consumers.detach(event, self._clock.monotonic())
            case ForBackend():
                self._consumers.for_backend(event)
            case ForGroupClient():
                self._consumers.for_group_client(event, self._clock.monotonic())
            case Call():
                self._calls.add(event)
            case CrashThread():
                raise event.error

    # --- the end -----------------------------------------------------------------------------------------------------

    def _fail(self, cause: BaseException) -> None:
        failure = ClientFailed(f"the network thread failed: {type(cause).__name__}: {cause}")
        failure.__cause__ = cause
        log.critical("multilane's network thread failed", exc_info=cause)
        self.failure = failure
        self._shut_down(failure)

    def _shut_down(self, reason: MultilaneError) -> None:
        self._delegate.abort(reason, self._clock.monotonic())
        self._consumers.close(reason)
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
            refuse_event(event, reason)

    # --- callbacks of the managers -----------------------------------------------------------------------------------

    def _on_cluster(self, cluster: Cluster) -> None:
        now = self._clock.monotonic()
        self._delegate.on_nodes(dict(cluster.nodes), now)
        self._consumers.on_cluster(cluster, now)

    def _on_topic_error(self, topic: str, error: BrokerError) -> None:
        self._consumers.topic_failed(topic, error)

    def _on_metadata_failure(self, error: MultilaneError) -> None:
        self._consumers.refused(error)

    def _on_rebootstrap(self) -> None:
        log.warning("no broker of the cluster responds: reconnecting through bootstrap.servers")
        self._observer.count("rebootstrap")
        self._delegate.forget_cluster(self._clock.monotonic())

    def _decode(self, frame: np.ndarray, tasks: list[DecodeTask], settings: FetchSettings) -> None:
        options = DecodeOptions(
            check_crc=settings.check_crcs,
            read_committed=settings.kind.read_committed,
            max_decompressed_bytes=settings.max_decompressed_bytes,
            memory=self._delegate.memory.take,
        )
        job = FrameJob(frame, tasks, options)
        (self._decoders.run if job.is_quick else self._decoders.submit)(job)

    def _post(self, backend: Backend, event: ApplicationEvent) -> None:
        self._events.put(ForBackend(backend, event))

    def _load_kernels(self) -> None:
        began = self._clock.monotonic()
        load_kernels()
        log.info("loaded the decoder in %.1f s", self._clock.monotonic() - began)
        self.can_decode = True
        self._wakeup.set()

    def _connection_setup(self, config: ConnectionConfig) -> ConnectionSetup:
        security = config.security
        login = None
        if security.sasl is not None:
            login = Login(security.sasl, self._chore_pool, self._clock.wall, self._wakeup.set)
        return ConnectionSetup(
            Resolver(self._chore_pool, self._wakeup.set, self._clock.monotonic),
            None if security.tls is None else tls_context(security.tls),
            login,
        )

    def _chore_pool(self) -> Executor:
        """Threads for blocking work: name resolution and token functions. Created on first use."""
        if self._chores is None:
            self._chores = ThreadPoolExecutor(2, thread_name_prefix=f"multilane-chores-{self._number}")
        return self._chores
