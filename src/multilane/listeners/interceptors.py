"""What surrounds a call of the user's function: interceptors and tracers.

Thread: loop for interceptors and tracers of consumption; `on_error` there too.

Owns the interfaces that an application may implement, and the context of each record in work. An interceptor that
raises fails the record as the function would: a filter may refuse that way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from multilane.clock import SystemClock
from multilane.listeners.context import Context, context_of
from multilane.logs import logger
from multilane.outcome.raised import as_failure
from multilane.seldom import Seldom
from multilane.wire.records.record import Record

log = logger(__name__)

_TELL_EVERY: Final = 10.0  # seconds

End = Callable[[BaseException | None], object]


class ConsumerInterceptor(Protocol):
    def on_consume(self, context: Context, record: Record) -> Context | None:
        """Before a record is handled. Fill the context, or give another."""


class ErrorInterceptor(Protocol):
    def on_error(self, context: Context, record: Record, error: BaseException) -> object:
        """After a record failed, before it goes to a retry or error topic."""


class Tracer(Protocol):
    def start(self, context: Context, name: str, record: Record) -> End:
        """A span around the handling of a record; what it gives is called at the end, with the error or None."""


class Visit(NamedTuple):
    """One record on its way through a function."""

    context: Context
    ends: tuple[End, ...]


class InterceptorChain:
    """Those of one listener: the application's first, then its own."""

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
        self._failed: dict[Record, Context] = {}  # until somebody is told
        self._mishaps, self._clock = Seldom(_TELL_EVERY), SystemClock()
        self.member_id: Callable[[], str | None] = lambda: None  # of whoever runs the function, where it is a member

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
        for end in reversed(visit.ends):  # what began last is within the others
            try:
                end(error)
            except BaseException as failure:  # noqa: BLE001 - what watches a record does not decide about it
                as_failure(failure)
                self._log_exception("a tracer failed at the end of %s", record)

    def forget(self, records: Iterable[Record]) -> None:
        """Nobody will be told of these: they were acknowledged before they failed, or come again."""
        for record in records:
            self._failed.pop(record, None)

    def tell_failure(self, record: Record, error: BaseException) -> Context:
        """The error interceptors hear of it, with the context of the attempt that failed."""
        context = self._failed.pop(record, None)
        if context is None:
            context = context_of(record, self._group, self.member_id())
        for interceptor in self._error_interceptors:
            try:
                interceptor.on_error(context, record, error)
            except BaseException as failure:  # noqa: BLE001 - the record goes its way all the same
                as_failure(failure)
                self._log_exception("an error interceptor failed for %s", record)
        return context

    def _log_exception(self, told: str, record: Record) -> None:
        """What fails for one record fails for each: a line every ten seconds is enough."""
        if many := self._mishaps.tell(self._clock.monotonic()):
            log.exception(f"{told}; %d such failures since the last line", record, many)
