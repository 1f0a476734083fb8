"""Loopback ports for brokers.

Thread: any.

Ports are chosen below the range from which systems take outgoing ports, so that a broker that restarts finds its own
ports free again.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Iterable
from typing import Final

from multilane.errors import DevKafkaError, PortInUse

HOST: Final = "127.0.0.1"
_LOWEST: Final = 20_000
_HIGHEST: Final = 32_000
_TRIES: Final = 2_000


def free_ports(count: int) -> list[int]:
    """Ports on which nobody listens now. Random, so that two processes that choose at once rarely meet."""
    # SystemRandom: a seed that tests set for everybody must not make two runs choose alike.
    chance = random.SystemRandom()
    found: set[int] = set()
    for _ in range(_TRIES):
        if len(found) == count:
            return sorted(found)
        port = chance.randrange(_LOWEST, _HIGHEST)
        if is_free(port):
            found.add(port)
    raise DevKafkaError(f"no {count} free ports between {_LOWEST} and {_HIGHEST}")


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As Kafka does it: connections of a predecessor in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
            probe.listen(1)
        except OSError:
            return False
        return True


def require_free(ports: Iterable[int]) -> None:
    for port in ports:
        if not is_free(port):
            raise PortInUse(f"port {port} on {HOST} is in use: stop what listens there, or choose another with --port")
