"""A handler that another process can import."""

from __future__ import annotations

import multiprocessing

from multilane.wire.records.record import Record


def pid_of(record: Record) -> None:
    assert multiprocessing.parent_process() is not None, "this is not a worker"
    if record.value == b"13":
        raise ValueError("a worker refuses 13")
