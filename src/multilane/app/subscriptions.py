"""Listeners that come and go while an application runs.

Thread: any; the engine works on its loop.

Owns who may: the process engine can change its consumers, a Spark run cannot. Without a run it only registers.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, MutableMapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from multilane.config.app.late_start import checked_late_start
from multilane.config.app.model import AppConfig
from multilane.config.app.sharing import key_of_trigger, shares
from multilane.config.sharing_key import SharingKey
from multilane.engines.process.driver import ProcessEngine
from multilane.errors import ConfigError
from multilane.runtime.lane_factory import LaneFactory
from multilane.runtime.registration import Registration

LeftBehind = dict[str, int]
_LONGEST: Final = 1e9  # seconds


class Subscriptions:
    def __init__(
        self,
        config: AppConfig,
        registrations: MutableMapping[str, Registration],
        factory_of: Callable[[Registration], LaneFactory],
    ) -> None:
        self._config = config
        self._registrations = registrations
        self._factory_of = factory_of
        self._lock = threading.RLock()
        self._engine: ProcessEngine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._drained: list[Future[LeftBehind]] = []
        self.has_factories = False  # an engine has begun with what is registered

    @contextmanager
    def served_by(self, build: Callable[[], ProcessEngine]) -> Iterator[ProcessEngine]:
        """For one run. Whoever subscribes is among the registrations that the engine is built from, or comes later."""
        with self._lock:
            self._engine, self._loop = build(), asyncio.get_running_loop()
            engine = self._engine
        try:
            yield engine
        finally:
            with self._lock:
                self._engine = self._loop = None
                self.has_factories = False
                drained, self._drained = self._drained, []
            for future in drained:
                future.set_result(engine.left)

    def _check_possible(self, is_running: bool) -> None:
        if self._engine is None and (is_running or self.has_factories):
            raise ConfigError(
                "listeners cannot come and go while an application runs on Spark, because its workers have their own "
                "copy of it: register them before, or use --engine process"
            )

    def begin(
        self, name: str, begin: str | datetime | None, register: Callable[[], object], *, is_running: bool
    ) -> Future[None]:
        """`is_running`: on any engine."""
        with self._lock:
            self._check_possible(is_running)
            register()
            name = self._config.consumer(name).name
            try:
                key = self._key_of(name)
                if begin is not None:
                    self._set_begin(name, key, begin)
            except BaseException:
                self._registrations.pop(name, None)
                raise
            return self._on_loop(lambda engine: self._begin(engine, name, key))

    def _set_begin(self, name: str, key: SharingKey | None, begin: str | datetime) -> None:
        if key is None:
            raise ConfigError(f"consumer {name!r}: begin is for consumers that share; set sharing, or leave it out")
        known = self._registrations[name]
        config = known.config.model_copy(update={"begin": checked_late_start(begin)})
        self._registrations[name] = replace(known, config=config)

    def _key_of(self, name: str) -> SharingKey | None:
        config = self._config.consumer(name)
        cluster = self._config.cluster(config.cluster)
        return key_of_trigger(config, cluster) if shares(config, cluster) else None

    async def _begin(self, engine: ProcessEngine, name: str, key: SharingKey | None) -> None:
        try:
            await engine.subscribe(self._factory_of(self._registrations[name]), key)
        except BaseException:
            self._registrations.pop(name, None)
            raise

    def end(self, name: str, *, is_running: bool) -> Future[None]:
        async def left(engine: ProcessEngine) -> None:
            await engine.unsubscribe(name)
            self._registrations.pop(name, None)

        with self._lock:
            self._check_possible(is_running)
            if self._engine is None:
                self._registrations.pop(name, None)
            return self._on_loop(left)

    def drain(self, timeout: float, *, is_running: bool) -> Future[LeftBehind]:
        if not 0 <= timeout < _LONGEST:
            raise ConfigError(f"drain: {timeout:g} is no time to drain; give seconds, zero or more")
        future: Future[LeftBehind] = Future()
        with self._lock:
            self._check_possible(is_running)
            if self._engine is None:
                future.set_result({})
            else:
                self._drained.append(future)
                self._engine.stop(timeout)
        return future

    def _on_loop(self, call: Callable[[ProcessEngine], Coroutine[Any, Any, None]]) -> Future[None]:
        """A completed future if nothing runs: the next run begins with what is registered then."""
        if self._engine is not None and self._loop is not None:
            return asyncio.run_coroutine_threadsafe(call(self._engine), self._loop)
        done: Future[None] = Future()
        done.set_result(None)
        return done
