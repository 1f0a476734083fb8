"""Interceptors and tracers: the code that surrounds a call of the user's function.

Thread: loop, `on_error` included.

Owns the interfaces that an application may implement, and the context of each record in flight. If an interceptor
raises, the record fails as if the function had raised: a filter may refuse records that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from multilane.clock import SystemClock
from multilane.listeners.context import Context, context_of
from multilane.logs import logger
from multilane.outcome.raised import as_failure
from multilane.rate_limit import RateLimit
from multilane.wire.records.record import Record

log = logger(__name__)

_LOG_EVERY: Final = 10.0  # seconds

End = Callable[[BaseException | None], object]


class ConsumerInterceptor(Protocol):
    def on_consume(self, context: Context, record: Record) -> Context | None:
        """Called before a record is handled. Fill the context, or return another one."""


class ErrorInterceptor(Protocol):
    def on_error(self, context: Context, record: Record, error: BaseException) -> object:
        """Called after a record failed, before it goes to a retry or error topic."""


class Tracer(Protocol):
    def start(self, context: Context, name: str, record: Record) -> End:
        """Start a span for the handling of a record. The returned function is called at the end, with the error or
        None."""


class Visit(NamedTuple):
    """One record while its function runs."""

    context: Context
    ends: tuple[End, ...]


class InterceptorChain:
    """The interceptors of one listener: the application's first, then its own."""

    def __init__(
        self,
        group: str,
        *,
        span: str = "",
        interceptors: Sequence[ConsumerInterceptor] = (),
        error_interceptors: Sequence[ErrorInterceptor] = (),
        tracers: Sequence[Tracer] = (),
        has_last_step: bool = False,
    ) -> None:
        self._group = group
        self._span = span or group
        self._interceptors = tuple(interceptors)
        self._error_interceptors = tuple(error_interceptors)
        self._tracers = tuple(tracers)
        self._keeps_contexts = bool(error_interceptors) or has_last_step
        self._failed: dict[Record, Context] = {}  # until the error interceptors get them
        self._failures_to_log, self._clock = RateLimit(_LOG_EVERY), SystemClock()
        self.member_id: Callable[[], str | None] = lambda: None  # if there is a group member

    def __bool__(self) -> bool:
        return bool(self._interceptors or self._error_interceptors or self._tracers)

    def enter(self, record: Record) -> Visit:
        context = context_of(record, self._group, self.member_id())
        for interceptor in self._interceptors:
            context = interceptor.on_consume(context, record) or context
        ends = tuple(tracer.start(context, self._span, record) for tracer in self._tracers)
        return Visit(context, ends)

    def leave(self, record: Record, visit: Visit, error: BaseException | None) -> None:
        if error is not None and self._keeps_contexts:
            self._failed[record] = visit.context
        for end in reversed(visit.ends):  # the last span to start is inside the others
            try:
                end(error)
            except BaseException as failure:  # noqa: BLE001 - a tracer does not decide whether a record fails
                as_failure(failure)
                self._log_exception("a tracer failed at the end of %s", record)

    def forget(self, records: Iterable[Record]) -> None:
        """Drop the contexts of records that were acknowledged before they failed, or are handled again."""
        for record in records:
            self._failed.pop(record, None)

    def on_failure(self, record: Record, error: BaseException) -> Context:
        """Call the error interceptors with the context of the attempt that failed, and return that context."""
        context = self._failed.pop(record, None)
        if context is None:
            context = context_of(record, self._group, self.member_id())
        for interceptor in self._error_interceptors:
            try:
                interceptor.on_error(context, record, error)
            except BaseException as failure:  # noqa: BLE001 - the record is retried all the same
                as_failure(failure)
                self._log_exception("an error interceptor failed for %s", record)
        return context

    def _log_exception(self, message: str, record: Record) -> None:
        """An interceptor that fails for one record usually fails for all: one line every ten seconds is enough."""
        if many := self._failures_to_log.due(self._clock.monotonic()):
            log.exception(f"{message}; %d such failures since the last line", record, many)
