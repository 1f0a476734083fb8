"""Shared consumers for code that has no application of its own: whoever needs one acquires a lease, and releases it.

Thread: any. A thread of its own runs the consumers, from the first lease to `close`.

The same machinery as an `App` with `sharing`: settings come from its configuration, by the name of a consumer. Owns the
leases and the thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from datetime import datetime
from types import TracebackType
from typing import Self, Unpack

from multilane.app.app import App
from multilane.clock import Clock
from multilane.config.app.loading import FilePath
from multilane.config.app.model import AppConfig
from multilane.config.app.sharing import key_of_trigger, shares
from multilane.config.sharing_key import SharingKey
from multilane.engines.process.leases import Lease, Leases
from multilane.errors import ClientClosed, ConfigError
from multilane.metrics.observer import NO_OBSERVER, Observer
from multilane.runtime.registration import Function, ListenerOptions


class SharedConsumer:
    """One consumer of the group, for all triggers whose sharing keys are equal. Made by `ConsumerPool.acquire`."""

    def __init__(self, pool: ConsumerPool, key: SharingKey) -> None:
        self._pool = pool
        self.key = key

    def __repr__(self) -> str:
        return f"SharedConsumer({self.key.digest}: {', '.join(self.triggers) or 'no triggers'})"

    @property
    def triggers(self) -> tuple[str, ...]:
        app = self._pool.app
        return tuple(name for name in app.consumers if self._pool.key_of(name) == self.key)

    def subscribe(
        self, name: str, function: Function, *, begin: str | datetime | None = None, **options: Unpack[ListenerOptions]
    ) -> Future[None]:
        """Have the function handle every record of a consumer's topic, with lanes, retries and a position of its own.
        See `App.subscribe`."""
        differences = self.key.differences(self._pool.key_of(name))
        if differences:
            raise ConfigError(f"consumer {name!r} cannot share this consumer: their {' and '.join(differences)} differ")
        return self._pool.app.subscribe(name, function, begin=begin, **options)

    def unsubscribe(self, name: str) -> Future[None]:
        """The trigger finishes its records in flight and leaves for good. See `App.unsubscribe`."""
        if name not in self.triggers:
            raise ConfigError(f"{name!r} is no trigger of this consumer; it has: {', '.join(self.triggers) or 'none'}")
        return self._pool.app.unsubscribe(name)


class ConsumerLease:
    """A share of a consumer. Only the first `release` counts."""

    def __init__(self, lease: Lease[SharedConsumer]) -> None:
        self._lease = lease

    @property
    def consumer(self) -> SharedConsumer:
        return self._lease.consumer

    def release(self) -> None:
        """The last release waits until the triggers have finished their records in flight, commits and closes the
        consumer."""
        self._lease.release()

    def __enter__(self) -> SharedConsumer:
        return self.consumer

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class ConsumerPool:
    """
    >>> with multilane.ConsumerPool("multilane.yaml") as pool, pool.acquire("index") as consumer:
    ...     consumer.subscribe("index", index).result()
    ...     consumer.subscribe("mail", mail, begin="earliest").result()
    ...     consumer.unsubscribe("mail").result()
    """

    def __init__(
        self,
        files: FilePath | Iterable[FilePath] | AppConfig,
        *,
        profile: str | None = None,
        properties: Mapping[str, object] | None = None,
        clock: Clock | None = None,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        """See `App` for the arguments."""
        self.app = App(files, profile=profile, properties=properties, clock=clock, observer=observer)
        self._leases: Leases[SharedConsumer] = Leases(self._close)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._failure: BaseException | None = None
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def key_of(self, name: str) -> SharingKey:
        """What a consumer of the configuration has to have in common with others to share with them."""
        config = self.app.config.consumer(name)
        cluster = self.app.config.cluster(config.cluster)
        if not shares(config, cluster):
            raise ConfigError(f"consumer {config.name!r} does not share: set sharing to same-topic or cross-topic")
        return key_of_trigger(config, cluster)

    def acquire(self, name: str) -> ConsumerLease:
        """A lease on the consumer that this consumer of the configuration shares. The first one makes it."""
        key = self.key_of(name)
        self._start()
        return ConsumerLease(self._leases.acquire(key, lambda: SharedConsumer(self, key)))

    def close(self) -> None:
        """Every trigger finishes its records in flight, and every consumer is closed, whoever has leases on them.
        Raises the error that ended the consumers, if one did. A second call does nothing."""
        with self._lock:
            self._is_closed = True
            thread, self._thread = self._thread, None
            failure, self._failure = self._failure, None
        if thread is not None:
            self.app.stop()
            thread.join()
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def _start(self) -> None:
        with self._lock:
            if self._is_closed:
                raise ClientClosed("this pool is closed")
            if self._failure is not None:
                raise self._failure
            if self._thread is not None:
                return
            begun = threading.Event()
            self._thread = threading.Thread(target=self._run, args=(begun,), name="multilane-pool", daemon=True)
            self._thread.start()
        begun.wait()

    def _run(self, begun: threading.Event) -> None:
        try:
            asyncio.run(self.app.serve(begun.set))
        except BaseException as error:  # noqa: BLE001 - `close` raises it
            self._failure = error
        finally:
            begun.set()

    def _close(self, consumer: SharedConsumer) -> None:
        for future in [self.app.unsubscribe(name) for name in consumer.triggers]:
            future.result()
