"""The known brokers, and the back-off of those that fail.

Thread: none (pure); owned by the delegate on the network thread.

Until the cluster is known, and again after a rebootstrap, the addresses of `bootstrap.servers` serve as brokers with
negative ids. Every failed attempt makes the next one wait longer. A refused login waits much longer, because only a
change of configuration helps and a storm of logins must not arise. An interrupted handshake may mean that the broker is
shutting down; several in a row count as a refusal.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from multilane.client.net.request_state import RequestBackoff
from multilane.errors import AuthenticationError, MultilaneError
from multilane.types import Node, NodeId

_REFUSED_AT_LEAST: Final = 2.0
_REFUSED_AT_MOST: Final = 60.0
_MOST_INTERRUPTIONS: Final = 3


class Directory:
    def __init__(
        self,
        bootstrap: Sequence[tuple[str, int]],
        backoff: RequestBackoff,
        *,
        rebootstrap: bool,
        choose: Callable[[Sequence[NodeId]], NodeId] = random.choice,
    ) -> None:
        self._bootstrap = {NodeId(-i): Node(NodeId(-i), host, port) for i, (host, port) in enumerate(bootstrap, 1)}
        self._nodes: Mapping[NodeId, Node] = {}
        self._backoff = backoff
        self._refused = RequestBackoff(
            max(_REFUSED_AT_LEAST, backoff.maximum), _REFUSED_AT_MOST, backoff.jitter, backoff.draw
        )
        self._rebootstrap = rebootstrap
        self._choose = choose
        self._failures: dict[NodeId, int] = {}
        self._interruptions: dict[NodeId, int] = {}
        self._not_before: dict[NodeId, float] = {}

    def get(self, node: NodeId) -> Node | None:
        return self._bootstrap.get(node) or self._nodes.get(node)

    def is_bootstrap(self, node: NodeId) -> bool:
        return node in self._bootstrap

    @property
    def knows_cluster(self) -> bool:
        return bool(self._nodes)

    def adopt(self, nodes: Mapping[NodeId, Node]) -> list[NodeId]:
        """Replace the brokers with those of the cluster; returns the brokers that left or moved."""
        changed = [n for n, node in self._nodes.items() if nodes.get(n) != node]
        self._nodes = dict(nodes)
        for node in changed:
            self.succeeded(node)
        return changed

    def forget_cluster(self) -> None:
        """Go back to the bootstrap addresses."""
        self._nodes = {}

    def failed(self, node: NodeId, error: MultilaneError, now: float) -> bool:
        """Record a failure. True if the broker refuses this client, so that an early retry is pointless."""
        failures = self._failures.get(node, 0) + 1
        self._failures[node] = failures
        refused = self._is_refusal(node, error)
        self._not_before[node] = now + (self._refused if refused else self._backoff).delay(failures)
        return refused

    def _is_refusal(self, node: NodeId, error: MultilaneError) -> bool:
        if not isinstance(error, AuthenticationError):
            self._interruptions.pop(node, None)
            return False
        if not error.retriable:
            return True
        self._interruptions[node] = self._interruptions.get(node, 0) + 1
        return self._interruptions[node] >= _MOST_INTERRUPTIONS

    def succeeded(self, node: NodeId) -> None:
        self._failures.pop(node, None)
        self._interruptions.pop(node, None)
        self._not_before.pop(node, None)

    def is_failing(self, node: NodeId) -> bool:
        return node in self._failures

    def wait(self, node: NodeId, now: float) -> float:
        """Seconds until this broker may be dialled."""
        return max(0.0, self._not_before.get(node, 0.0) - now)

    def any_node(self, now: float) -> NodeId | None:
        """A broker to dial for a request that any broker can answer; None while all are in back-off."""
        free = [n for n in self._nodes if self.wait(n, now) == 0]
        if not free and self._nodes and not self._all_failed():
            return None
        if not free and (self._rebootstrap or not self._nodes):
            free = [n for n in self._bootstrap if self.wait(n, now) == 0]
        return self._choose(free) if free else None

    def shortest_wait(self, now: float) -> float:
        candidates = [*self._nodes, *self._bootstrap]
        return min((w for n in candidates if (w := self.wait(n, now)) > 0), default=0.0)

    def _all_failed(self) -> bool:
        return all(n in self._failures for n in self._nodes)
