"""Functions that worker processes can import."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow

from multilane.wire.records.record import Record


def crash_on(folder: str, record: Record) -> None:
    """Kills its worker for the key `crash`; others wait until that has happened."""
    if record.key == b"crash":
        Path(folder, "crashed").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    while not Path(folder, "crashed").exists():
        threading.Event().wait(0.005)
    Path(folder, f"done-{record.offset}-{os.getpid()}").touch()


def hang_on(record: Record) -> None:
    """Never ends for the key `hang`, whatever signal it gets."""
    if record.key == b"hang":
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        while True:
            threading.Event().wait(60)


def note_then_die_once(folder: str, records: list[Record] | Record) -> None:
    """Has its effect on all of them, and kills its worker the first time."""
    some = records if isinstance(records, list) else [records]
    with open(Path(folder, "ledger"), "a") as ledger:
        ledger.writelines(f"{record.offset}\n" for record in some)
    if not Path(folder, "died").exists():
        Path(folder, "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)


def note_one_then_die_once(folder: str, record: Record) -> None:
    note_then_die_once(folder, record)


def note_many_then_die_once(folder: str, records: list[Record]) -> None:
    note_then_die_once(folder, records)


def leave(record: Record) -> None:
    if record.key == b"leave":
        sys.exit(0)


def own_pid(delay: float = 0.0) -> int:
    threading.Event().wait(delay)
    return os.getpid()


class Picky(Exception):
    """Cannot be made again from its arguments alone."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def raise_picky() -> None:
    raise Picky("one", "another")


def give_a_lock() -> Any:
    return threading.Lock()


class Endless:
    """A function of a module whose import never ends in a worker process."""

    def __call__(self, record: Record) -> None:
        """Nobody comes here."""

    def __reduce__(self) -> Any:
        return _import_for_ever, ()


def _import_for_ever() -> None:
    while True:
        threading.Event().wait(60)


class DiesFirst:
    """A function whose first import ends its worker process."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, record: Record) -> None:
        """Nobody comes here."""

    def __reduce__(self) -> Any:
        return _imported, (self._folder,)


def _imported(folder: str) -> DiesFirst:
    try:
        Path(folder, "imported").touch(exist_ok=False)
    except FileExistsError:
        return DiesFirst(folder)
    os._exit(3)


def crash_on_batch(records: list[Record]) -> None:
    """Kills its worker if one of the keys is `crash`."""
    if any(record.key == b"crash" for record in records):
        os.kill(os.getpid(), signal.SIGKILL)


def crash_on_columns(batch: pyarrow.RecordBatch) -> None:
    """The same for a columnar batch."""
    if b"crash" in batch["key"].to_pylist():
        os.kill(os.getpid(), signal.SIGKILL)
