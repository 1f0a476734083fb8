"""A listener: the user's function, ready to be called with records.

Thread: loop. The runner that the listener gets runs `def` functions (not coroutine functions) elsewhere.

Owns how arguments are made from records. If a function takes only a record and there are no interceptors, it is called
directly: that path costs nothing.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from multilane.errors import RegistryUnavailable, UndecodablePayload, WrongFailures, WrongResult
from multilane.listeners.acknowledgement import Acknowledgement
from multilane.listeners.call_timer import CallTimer
from multilane.listeners.context import CURRENT, Context
from multilane.listeners.interceptors import InterceptorChain, Visit
from multilane.listeners.payload import Decode, decoder_for
from multilane.listeners.registered import RegisteredPayloads
from multilane.listeners.signature import ListenerKind, Signature, Wants, location_of
from multilane.listeners.window import Window
from multilane.outcome.raised import as_failure
from multilane.wire.records.record import Record
from multilane.wire.records.window_rows import WindowRows

if TYPE_CHECKING:
    import pyarrow as pa

CallErrors = dict[Record, BaseException]
CallResults = dict[Record, Any]


class Runner(Protocol):
    """Runs a `def` function off the loop."""

    limit: float  # threads, for runners that have threads

    def withdraw(self) -> None:
        """Withdraw the calls that have not begun."""

    @property
    def idents(self) -> Collection[int]:
        """Its threads."""

    @property
    def shares_memory(self) -> bool:
        """Whether the function sees this process's memory, such as context variables."""

    @property
    def ends_calls(self) -> bool:
        """Whether a call ends when the task that awaits it is cancelled."""

    @property
    def gate(self) -> AbstractAsyncContextManager[object] | None:
        """Limits how many calls run at once; None if there is no limit."""

    def __call__(self, function: Callable[[], Any]) -> Awaitable[Any]: ...


class Listener:
    def __init__(
        self,
        function: Callable[..., Any],
        signature: Signature,
        window: Window,
        interceptors: InterceptorChain,
        runner: Runner,
        timer: CallTimer | None = None,
    ) -> None:
        self._name = location_of(function)
        self._call_runner: Callable[[Callable[[], Any]], Awaitable[Any]] = runner
        if timer is not None and signature.is_async:
            function = timer.timed_async(function)
        elif timer is not None and runner.shares_memory:
            function = timer.timed(function)
        elif timer is not None:
            self._call_runner = timer.timed_async(runner)
        self.window = window
        self.interceptors = interceptors
        self.kind = signature.kind
        self._is_async = signature.is_async
        self.cancels = signature.is_async or runner.ends_calls  # whether a call can be cancelled
        self._function = function
        self._signature = signature
        self._runner = runner
        self._decode: Decode | None = None if signature.payload is None else decoder_for(signature.payload)
        self._schemas = self._decode if isinstance(self._decode, RegisteredPayloads) else None
        self._wants_context = signature.wants(Wants.CONTEXT) or bool(interceptors)
        self.call_one = self._direct_call()
        self._plain_parameter = self._only_parameter()

    def __str__(self) -> str:
        return self._name

    @property
    def gate(self) -> AbstractAsyncContextManager[object] | None:
        """What a call waits for before its processing time starts."""
        return None if self._is_async else self._runner.gate

    # --- one record --------------------------------------------------------------------------------------------------

    def _direct_call(self) -> Callable[..., Awaitable[Any]]:
        is_direct = len(self._signature.parameters) == 1 and self._signature.wants(Wants.RECORD)
        if not is_direct or self._wants_context:
            return self._call_one
        return self._function if self._is_async else self._call_with_record

    async def _call_with_record(self, record: Record) -> Any:
        return await _ended(await self._call_runner(partial(self._function, record)))

    @property
    def runs_on_threads(self) -> bool:
        """A `def` function that takes only a record and runs on threads of this process."""
        return self.call_one == self._call_with_record and self._runner.shares_memory

    def call_with_start(self, on_start: Callable[[], object]) -> Callable[[Record], Awaitable[None]]:
        """A call that runs `on_start` first, on its thread: the call may have waited for that thread."""
        runner, function = self._call_runner, self._function

        async def call(record: Record) -> None:
            await _ended(await runner(partial(_started, on_start, function, record)))

        return call

    def withdraw(self) -> None:
        """Withdraw the calls that still wait for a thread."""
        self._runner.withdraw()

    def limit_threads(self, threads: float) -> None:
        """How many threads there may be at once."""
        self._runner.limit = threads

    @property
    def threads(self) -> Collection[int]:
        """The threads that run its calls."""
        return self._runner.idents

    async def _call_one(self, record: Record, acknowledgement: Acknowledgement | None = None) -> Any:
        if self._schemas is not None and (missing := self._schemas.missing((record,))):
            await self._schemas.fetch(missing)
        if not self._wants_context:
            return await self._run(self._arguments(record, None, acknowledgement), None)
        visit = self.interceptors.enter(record)
        error: BaseException | None = None
        try:
            return await self._run(self._arguments(record, visit.context, acknowledgement), visit.context)
        except BaseException as failure:
            error = failure
            raise
        finally:
            self.interceptors.leave(record, visit, error)
            del error  # its traceback references this frame

    def _arguments(self, record: Record, context: Context | None, ack: Acknowledgement | None) -> dict[str, Any]:
        given: dict[Wants, Any] = {Wants.RECORD: record, Wants.CONTEXT: context, Wants.ACKNOWLEDGEMENT: ack}
        if self._decode is not None:
            given[Wants.PAYLOAD] = self._decode(record)
        return {name: given[wanted] for name, wanted in self._signature.parameters}

    async def _run(self, arguments: Mapping[str, Any], context: Context | None) -> Any:
        if not self._is_async:
            call = partial(self._function, **arguments)
            return await _ended(await self._call_runner(_within(context, call) if self._runner.shares_memory else call))
        if context is None:
            return await self._function(**arguments)
        token = CURRENT.set(context)
        try:
            return await self._function(**arguments)
        finally:
            CURRENT.reset(token)

    # --- batches -----------------------------------------------------------------------------------------------------

    async def call_many(
        self,
        records: Sequence[Record],
        acknowledgement: Acknowledgement | None = None,
        results: CallResults | None = None,
    ) -> CallErrors:
        """The records that failed, with their errors. The caller empties the dict when it is done with it. `results`
        gets what the function returned for the others; None: failures are all that it returns."""
        if self._plain_parameter is not None:
            name, make = self._plain_parameter
            return self._failures(records, await self._function(**{name: make(records)}), results)
        if self._schemas is not None and (missing := self._schemas.missing(records)):
            await self._schemas.fetch(missing)
        failures: CallErrors = {}
        visits = self._enter_all(records, failures)
        arguments = self._many_arguments(records, failures, visits, acknowledgement)
        handled = [record for record in records if record not in failures] if failures else records
        error: BaseException | None = None
        try:
            if handled:
                context = visits[handled[-1]].context if visits else None
                failures |= self._failures(handled, await self._run(arguments, context), results)
        except BaseException as failure:
            error = failure
            raise
        finally:
            for record, visit in reversed(visits.items()):
                self.interceptors.leave(record, visit, failures.get(record, error))
            if error is not None:
                failures.clear()
            del error  # its traceback references this frame
        return failures

    def _only_parameter(self) -> tuple[str, Callable[[Sequence[Record]], Any]] | None:
        """The parameter of a coroutine function that takes a batch and nothing else: it is called directly."""
        makes: dict[Wants, Callable[[Sequence[Record]], Any]] = {Wants.RECORDS: list, Wants.COLUMNS: _columns}
        if not self._is_async or self._wants_context or len(self._signature.parameters) != 1:
            return None
        [(name, wanted)] = self._signature.parameters
        return (name, makes[wanted]) if wanted in makes else None

    def _enter_all(self, records: Sequence[Record], failures: CallErrors) -> dict[Record, Visit]:
        visits: dict[Record, Visit] = {}
        if self._wants_context:
            for record in records:
                try:
                    visits[record] = self.interceptors.enter(record)
                except BaseException as error:  # noqa: BLE001 - an interceptor refuses this one, not the others
                    failures[record] = as_failure(error)
        return visits

    def _many_arguments(
        self,
        records: Sequence[Record],
        failures: CallErrors,
        visits: Mapping[Record, Visit],
        acknowledgement: Acknowledgement | None,
    ) -> dict[str, Any]:
        given: dict[Wants, Any] = {Wants.ACKNOWLEDGEMENT: acknowledgement}
        if self._decode is not None:
            given[Wants.PAYLOADS] = self._decoded(records, failures)
        handled = [record for record in records if record not in failures] if failures else records
        if self._signature.wants(Wants.RECORDS):
            given[Wants.RECORDS] = list(handled)  # a copy: the function may change it
        if visits and handled:
            given[Wants.CONTEXT] = visits[handled[-1]].context
        if self.kind is ListenerKind.COLUMNS and handled:
            given[Wants.COLUMNS] = _columns(handled)
        return {name: given.get(wanted) for name, wanted in self._signature.parameters}

    def _decoded(self, records: Sequence[Record], failures: CallErrors) -> list[Any]:
        assert self._decode is not None  # noqa: S101
        payloads = []
        for record in records:
            if record in failures:
                continue
            try:
                payloads.append(self._decode(record))
            except (UndecodablePayload, RegistryUnavailable) as error:
                failures[record] = error
        return payloads

    def _failures(self, records: Sequence[Record], returned: Any, results: CallResults | None) -> CallErrors:
        """The failures that a batch function returned: records, or their indexes in the batch, with their errors."""
        if results is not None and returned is not None and not isinstance(returned, Mapping):
            return self._failures_among(records, returned, results)
        if not returned:
            return {}
        if not isinstance(returned, Mapping):
            raise WrongFailures(f"{self} returned {type(returned).__name__}: return a dict of the failures, or None")
        failures: CallErrors = {}
        known = set(records)
        for which, error in returned.items():
            is_index = isinstance(which, int) and 0 <= which < len(records)
            record = records[which] if is_index else which
            if record not in known or not isinstance(error, BaseException):
                raise WrongFailures(
                    f"{self} returned a failure whose key is not in the batch, or whose value is not an exception"
                )
            failures[record] = error
        return failures

    def _failures_among(self, records: Sequence[Record], returned: Any, results: CallResults) -> CallErrors:
        """A value for each record; an exception is the failure of its record."""
        values = _values(returned)
        if values is None or len(values) != len(records):
            what = type(returned).__name__ if values is None else f"{len(values)} results"
            raise WrongResult(
                f"{self} returned {what} for {len(records)} records: with results it returns a list with one result "
                "for each record (None for none, an exception for a failure), or a dict of the failures"
            )
        failures: CallErrors = {}
        for record, value in zip(records, values, strict=True):
            (failures if isinstance(value, BaseException) else results)[record] = value
        return failures


def _values(returned: Any) -> list[Any] | None:
    """What a batch function returned, one value for each record; None if it is no sequence."""
    if isinstance(returned, list | tuple):
        return list(returned)
    to_list = getattr(returned, "to_pylist", None)  # arrays and record batches of Arrow
    return list(to_list()) if callable(to_list) else None


def _columns(records: Sequence[Record]) -> pa.RecordBatch:
    if isinstance(records, WindowRows):
        return records.batch()
    from multilane.wire.records.arrow import batch_of

    return batch_of(records)


async def _ended(result: Any) -> Any:
    """A `def` function that wraps a coroutine function returns a coroutine: nothing has run until it is awaited."""
    return await result if result is not None and inspect.isawaitable(result) else result


def _started(on_start: Callable[[], object], function: Callable[[Record], Any], record: Record) -> Any:
    on_start()
    return function(record)


def _within(context: Context | None, function: Callable[[], Any]) -> Callable[[], Any]:
    if context is None:
        return function

    def run() -> Any:
        CURRENT.set(context)
        return function()

    return partial(copy_context().run, run)
