"""Keeps a cluster in the foreground until a signal arrives or a broker exits.

Thread: application (the main thread: signal handlers).
"""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, Final

from multilane.errors import BrokerStartError

if TYPE_CHECKING:
    from types import FrameType

    from multilane.dev.kafka import KafkaCluster

_CHECK_SECONDS: Final = 0.5


def run_until_signal(cluster: KafkaCluster) -> None:
    """Returns on SIGINT or SIGTERM; raises when a broker exits by itself."""
    signalled = threading.Event()

    def on_signal(number: int, frame: FrameType | None) -> None:
        del number, frame
        signalled.set()

    previous = {number: signal.signal(number, on_signal) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while not signalled.wait(_CHECK_SECONDS):
            for node in range(1, cluster.nodes + 1):
                if not cluster.running(node):
                    raise BrokerStartError(f"node {node} exited by itself:\n{cluster.logs(node)}")
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
