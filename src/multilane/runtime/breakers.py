"""`errorBreaker` of the configuration -> what pauses a consumer when most calls fail, or ends it.

Thread: loop.
"""

from __future__ import annotations

import os
from zlib import crc32

from multilane.clock import Clock
from multilane.config.app.consumer import ConsumerGroupConfig
from multilane.lanes.gate import OutageGate
from multilane.metrics.observer import Observer
from multilane.outcome.breaker import Breaker
from multilane.outcome.outage import Outage, OutageRules


def breaker_of(config: ConsumerGroupConfig) -> Breaker | None:
    """For `action: stop`."""
    told = config.error_breaker
    return Breaker(told.share, told.window, told.minimum) if told is not None and told.action == "stop" else None


def gate_of(config: ConsumerGroupConfig, clock: Clock, observer: Observer) -> OutageGate | None:
    """For `action: pause`: what keeps lanes waiting while an outage lasts, of all partitions of the consumer."""
    told = config.error_breaker
    if told is None or told.action != "pause":
        return None
    seed = crc32(f"{config.name}/{os.getpid()}".encode())
    outage = Outage(OutageRules(told.share, told.window, told.minimum), config.retry_backoff, seed)
    return OutageGate(config.name, outage, clock, observer)
