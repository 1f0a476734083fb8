"""The messages between the driver of a backfill and its tasks: their kinds and fields.

Thread: none (pure).

Every message of a task has its `number`.
"""

from __future__ import annotations

import enum


class ToTask(enum.StrEnum):
    WORK = "work"  # errand: a BackfillTask
    END = "end"  # stop gracefully
    CLOSED = "closed"  # the driver has stored the final report


class FromTask(enum.StrEnum):
    HELLO = "hello"  # host, pid: it waits for WORK
    PROGRESS = "told"  # report: a ProgressReport; news: counts, failures and gauges
    OVER = "over"  # the same, for the last time; it waits for CLOSED
    FAILED = "failed"  # error; lasting: a retry would fail too
