"""The application of a member, which tells everything it does; and a member of the process engine:
`member_main.py NAME PLAN JOURNAL`. Runs until SIGTERM."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa

sys.path.insert(0, os.fspath(Path(__file__).parents[1]))

from conformance.cases import Case, Order, beside
from multilane import App, Record, Selection
from multilane.clock import SystemClock
from multilane.listeners.window import newest_of_each_key
from multilane.outcome.next_step import RetryPolicy, attempt
from multilane.testing.events import Ended, Rebalanced, RecordPlace, Skipped, Started
from multilane.testing.journal import Journal

_LOOK_SECONDS = 0.01
_CLOCK = SystemClock()


class Refused(Exception):
    """A handler fails because the record told it to."""


class Diary:
    """What one case's handlers tell, and what records tell them."""

    def __init__(self, case: Case, member: str, journal: Journal) -> None:
        self.case = case
        self._member = member
        self._journal = journal
        self._flow = RetryPolicy(case.name, case.retry, case.error, 0 if case.retry is None else 2)
        self._calls = itertools.count(1)

    def begin(self, records: Sequence[Record]) -> int:
        call, at = next(self._calls), _CLOCK.monotonic()
        self._write(Started(at, self._member, call, *_facts(r), attempt(r, self._flow)) for r in records)
        return call

    def end(self, call: int, records: Sequence[Record], failed: Sequence[Record]) -> None:
        at = _CLOCK.monotonic()
        self._write(Ended(at, self._member, call, *_facts(record), record not in failed) for record in records)

    def select(self, records: list[Record]) -> Selection:
        """What a unique listener does by itself, told."""
        selection = newest_of_each_key(records)
        newest = {record.key: str(Order.of(record.value).number) for record in selection.handled}
        at = _CLOCK.monotonic()
        self._write(Skipped(at, self._member, *_facts(r), newest[r.key]) for r in selection.skipped)
        return selection

    def failing(self, records: Sequence[Record]) -> list[Record]:
        return [record for record in records if attempt(record, self._flow) <= Order.of(record.value).fails]

    def _write(self, events: Any) -> None:
        told = list(events)
        if told:
            self._journal.write(self.case.name, *told)

    # --- as long as the records say ----------------------------------------------------------------------------------

    async def rest(self, records: Sequence[Record]) -> None:
        loop = asyncio.get_running_loop()
        told = [Order.of(record.value) for record in records]
        await asyncio.wait([loop.create_future()], timeout=max(order.wait for order in told))
        while any(order.hold and not Path(order.hold).exists() for order in told):
            await asyncio.wait([loop.create_future()], timeout=_LOOK_SECONDS)

    def rest_on_thread(self, records: Sequence[Record]) -> None:
        told = [Order.of(record.value) for record in records]
        nobody = threading.Event()
        nobody.wait(max(order.wait for order in told))
        while any(order.hold and not Path(order.hold).exists() for order in told):
            nobody.wait(_LOOK_SECONDS)


def _facts(record: Record) -> tuple[str, str | None, RecordPlace]:
    key = None if record.key is None else record.key.decode()
    return str(Order.of(record.value).number), key, RecordPlace(record.topic, record.partition, record.offset)


def _singly(diary: Diary) -> Callable[..., Any]:
    async def handle(record: Record) -> None:
        call = diary.begin([record])
        try:
            await diary.rest([record])
        except asyncio.CancelledError:
            diary.end(call, [record], [record])
            raise
        failed = diary.failing([record])
        diary.end(call, [record], failed)
        if failed:
            raise Refused(f"record {record.offset} wants to fail")

    return handle


def _on_threads(diary: Diary) -> Callable[..., Any]:
    def handle(record: Record) -> None:
        call = diary.begin([record])
        diary.rest_on_thread([record])
        failed = diary.failing([record])
        diary.end(call, [record], failed)
        if failed:
            raise Refused(f"record {record.offset} wants to fail")

    return handle


def _in_batches(diary: Diary) -> Callable[..., Any]:
    async def handle(records: list[Record]) -> dict[Record, Exception]:
        call = diary.begin(records)
        try:
            await diary.rest(records)
        except asyncio.CancelledError:
            diary.end(call, records, records)
            raise
        failed = diary.failing(records)
        diary.end(call, records, failed)
        return {record: Refused("it wants to fail") for record in failed}

    return handle


def _in_columns(diary: Diary) -> Callable[..., Any]:
    def handle(batch: pa.RecordBatch) -> dict[int, Exception]:
        records = [_row(row) for row in batch.to_pylist()]
        call = diary.begin(records)
        diary.rest_on_thread(records)
        failed = diary.failing(records)
        diary.end(call, records, failed)
        return {records.index(record): Refused("it wants to fail") for record in failed}

    return handle


def _row(row: dict[str, Any]) -> Record:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return Record(row["topic"], row["partition"], row["offset"], 0, 0, row["key"], row["value"], headers)


_HANDLERS = {
    "single": _singly,
    "sync": _on_threads,
    "batch": _in_batches,
    "columns": _in_columns,
    "unique": _singly,
}


class _Steps:
    """An observer that tells of rebalances."""

    def __init__(self, cases: Sequence[Case], member: str, journal: Journal) -> None:
        self._by_group = {case.group: case.name for case in cases}
        self._member = member
        self._journal = journal

    def count(self, name: str, value: float = 1, **labels: str) -> None:
        if name == "rebalance.step":
            event = Rebalanced(_CLOCK.monotonic(), self._member, labels["change"] == "lost")
            self._journal.write(self._by_group[labels["group"]], event)


def _configuration(bootstrap: str, cases: Sequence[Case]) -> dict[str, Any]:
    return {
        "clusters": {"main": {"clientId": "conformance", "brokers": bootstrap, "properties": {"linger.ms": 0}}},
        "consumers": {
            name: keys for case in cases for name, keys in [(case.name, case.configuration()), *beside(case).items()]
        },
    }


def made_app(member: str, plan: str, path: str) -> App:
    told = json.loads(Path(plan).read_text())
    cases = [Case(**case) for case in told["cases"]]
    journal = Journal(Path(path))
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(_configuration(told["bootstrap"], cases), file)  # JSON is YAML
        file.flush()
        app = App(file.name, observer=_Steps(cases, member, journal))
    for case in cases:
        diary = Diary(case, member, journal)
        options: dict[str, Any] = {"select": diary.select} if case.kind == "unique" else {}
        app.listener(case.name, **options)(_HANDLERS[case.kind](diary))
        for name in beside(case):
            app.listener(name)(_passing_by(Diary(replace(case, name=name, mode="none"), member, journal)))
    return app


def _passing_by(diary: Diary) -> Callable[..., Any]:
    """Another trigger of a group, which is judged by itself: it is quick, and fails with nothing."""

    async def pass_by(record: Record) -> None:
        call = diary.begin([record])
        try:
            await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=0.001)
        except asyncio.CancelledError:
            diary.end(call, [record], [record])
            raise
        diary.end(call, [record], [])

    return pass_by


def told_app() -> App:
    """For a process that was given its arguments by the environment."""
    return made_app(*json.loads(os.environ["CONFORMANCE_MEMBER"]))


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    made_app(*sys.argv[1:]).run()
