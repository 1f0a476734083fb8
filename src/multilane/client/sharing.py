"""Shares one network thread between clients with the same brokers, protocol, credentials, clock and observer.

Thread: any; a lock guards the table.

A thread starts for its first client and stops after its last. A forked child has none: threads and sockets stay with
the parent, and new clients in the child start their own.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from multilane.client.network import NetworkThread
from multilane.clock import Clock, SystemClock
from multilane.config.connection import connection_key
from multilane.metrics.observer import NO_OBSERVER, Observer, guarded

if TYPE_CHECKING:
    from multilane.config.connection import ConnectionConfig


@dataclass(slots=True, eq=False)
class _Shared:
    thread: NetworkThread
    clients: int


class ThreadTable:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._threads: dict[Hashable, _Shared] = {}

    def acquire(
        self, config: ConnectionConfig, clock: Clock | None = None, observer: Observer | None = None
    ) -> NetworkThreadLease:
        """A running network thread for this configuration, for clients with this very clock and observer."""
        # The thread holds both, so their ids stay theirs while it is in the table. All system clocks are the same one.
        clock_id = None if clock is None or type(clock) is SystemClock else id(clock)
        observer_id = id(NO_OBSERVER if observer is None else observer)
        key = (connection_key(config), clock_id, observer_id)
        with self._lock:
            shared = self._threads.get(key)
            if shared is None or shared.thread.failure is not None:
                time = clock or SystemClock()
                shared = _Shared(NetworkThread(config, time, guarded(observer or NO_OBSERVER, time)), 0)
                shared.thread.start()
                self._threads[key] = shared
            shared.clients += 1
            return NetworkThreadLease(self, key, shared.thread)

    def release(self, key: Hashable, lease: NetworkThreadLease) -> Future[None] | None:
        """Release one client. If it was the last, the future completes when thread and sockets are closed."""
        thread = lease.thread
        with self._lock:
            if lease.is_released:
                return None
            lease.is_released = True
            shared = self._threads.get(key)
            if shared is None or shared.thread is not thread:
                return None  # it failed and was replaced
            shared.clients -= 1
            if shared.clients > 0:
                return None
            del self._threads[key]
        thread.stop()
        return thread.ended

    def figures(self) -> tuple[int, int]:
        """Running threads, and their open connections."""
        with self._lock:
            threads = [shared.thread for shared in self._threads.values()]
        return len(threads), sum(thread.connection_count for thread in threads)

    def after_fork(self) -> None:
        self._lock = threading.Lock()
        self._threads = {}


class NetworkThreadLease:
    """One client's share of a network thread. Only the first `release` counts."""

    __slots__ = ("_key", "_pid", "_table", "is_released", "thread")

    def __init__(self, table: ThreadTable, key: Hashable, thread: NetworkThread) -> None:
        self._table = table
        self._key = key
        self._pid = os.getpid()
        self.thread = thread
        self.is_released = False  # changed by the table, under its lock

    @property
    def is_inherited(self) -> bool:
        """Whether this process inherited the lease in a fork; then no thread runs behind it."""
        return os.getpid() != self._pid

    @contextmanager
    def kept_on_success(self) -> Iterator[NetworkThreadLease]:
        """Wraps the construction of a client: releases the lease if that fails."""
        try:
            yield self
        except BaseException:
            self.release()
            raise

    def release(self) -> Future[None] | None:
        return None if self.is_inherited else self._table.release(self._key, self)


THREADS = ThreadTable()
os.register_at_fork(after_in_child=THREADS.after_fork)
