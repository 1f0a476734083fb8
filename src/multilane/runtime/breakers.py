"""`errorBreaker` of the configuration -> the breaker or gate that stops or pauses a consumer when most calls fail.

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
    settings = config.error_breaker
    if settings is None or settings.action != "stop":
        return None
    return Breaker(settings.share, settings.window, settings.minimum)


def gate_of(config: ConsumerGroupConfig, clock: Clock, observer: Observer) -> OutageGate | None:
    """For `action: pause`: the gate at which the lanes of all partitions of the consumer wait during an outage."""
    settings = config.error_breaker
    if settings is None or settings.action != "pause":
        return None
    seed = crc32(f"{config.name}/{os.getpid()}".encode())
    outage = Outage(OutageRules(settings.share, settings.window, settings.minimum), config.retry_backoff, seed)
    return OutageGate(config.name, outage, clock, observer)
