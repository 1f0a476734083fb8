"""The messages between the supervisor and its members: their kinds and fields.

Thread: none (pure).

Every message of a member has its `number`.
"""

from __future__ import annotations

import enum


class ToMember(enum.StrEnum):
    SERVE = "serve"  # join the groups
    STOP = "stop"  # cleanly
    APPLY_OVERRIDES = "steer"  # consumer, steering: overrides of a consumer


class FromMember(enum.StrEnum):
    READY = "ready"  # host, pid: it waits for SERVE
    REPORT = "beat"  # counts, failures: since the last report; gauges: now
    FAILED = "failed"  # error, stage


class FailureStage(enum.StrEnum):
    """When a member failed."""

    STARTING = "starting"  # before it was READY
    REFUSED = "refused"  # by its configuration
    SERVING = "serving"
