"""The schemas of a registry, kept for the life of the process: each is asked for once.

Thread: any; a lock lets one request through at a time.

A schema never changes under its id. An id that the registry does not have is remembered for a while, so that a topic of
foreign bytes does not become a flood of requests, and so is a failure, so that everybody who waits does not wait in
turn. Owns the API's client; decodes nothing.
"""

from __future__ import annotations

import threading
from typing import Any, Final

from multilane.clock import Clock, SystemClock
from multilane.config.app.registry import APICURIO, SchemaRegistryConfig
from multilane.errors import RegistryUnavailable, UnknownSchema
from multilane.registry.answers import RegistryApi, WriterSchema
from multilane.registry.framing import SchemaId

MOST_SCHEMAS: Final = 1_000
REMEMBERED: Final = 30.0  # seconds for an unknown id
REST: Final = 1.0  # seconds after a failure until the registry is asked again


class SchemaRegistry:
    def __init__(
        self, config: SchemaRegistryConfig, clock: Clock | None = None, api: RegistryApi | None = None
    ) -> None:
        self.wire_format = config.wire_format
        self.timeout = config.timeout
        self._clock = clock or SystemClock()
        self._api = api or _api(config)
        self._lock = threading.Lock()
        self._schemas: dict[SchemaId, WriterSchema] = {}
        self._unknown: dict[SchemaId, tuple[float, UnknownSchema]] = {}
        self._failed: tuple[float, RegistryUnavailable] | None = None

    def known(self, wanted: SchemaId) -> WriterSchema | None:
        """Without asking. Raises UnknownSchema for an id that the registry did not have a moment ago."""
        found = self._schemas.get(wanted)
        if found is None and (missing := self._unknown.get(wanted)) is not None:
            until, error = missing
            if self._clock.monotonic() < until:
                raise UnknownSchema(str(error))
        return found

    def schema(self, wanted: SchemaId) -> WriterSchema:
        """Asks for it, if it is not known. Blocks; raises UnknownSchema or RegistryUnavailable."""
        found = self.known(wanted)
        if found is not None:
            return found
        with self._lock:
            found = self.known(wanted)  # another thread may have asked meanwhile
            return self._asked(wanted) if found is None else found

    def latest(self, subject: str) -> WriterSchema:
        """The newest schema of a subject; never kept."""
        with self._lock:
            return self._api.latest(subject)

    def _asked(self, wanted: SchemaId) -> WriterSchema:
        if self._failed is not None and self._clock.monotonic() < self._failed[0]:
            raise RegistryUnavailable(str(self._failed[1]))
        try:
            found = self._api.schema(wanted)
        except UnknownSchema as error:
            _make_room(self._unknown)
            self._unknown[wanted] = (self._clock.monotonic() + REMEMBERED, error)
            raise
        except RegistryUnavailable as error:
            self._failed = (self._clock.monotonic() + REST, error)
            raise
        _make_room(self._schemas)
        self._schemas[wanted] = found
        self._failed = None
        return found


def _make_room(kept: dict[SchemaId, Any]) -> None:
    """The oldest goes."""
    while len(kept) >= MOST_SCHEMAS:
        kept.pop(next(iter(kept)))


def _api(config: SchemaRegistryConfig) -> RegistryApi:
    if config.wire_format == APICURIO:
        from multilane.registry.apicurio import ApicurioApi

        return ApicurioApi(config)
    from multilane.registry.confluent import ConfluentApi

    return ConfluentApi(config)
