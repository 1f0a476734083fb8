"""The application's callbacks for rebalances.

Thread: application: only poll(), unsubscribe() and close() call them.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multilane.types import TopicPartition


class RebalanceListener:
    """Override what you need. With an AsyncConsumer the methods may be coroutine functions.

    A callback may make any call of the consumer except poll(). The rebalance continues after an exception, and the
    calling poll() raises it.
    """

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These partitions go to other members, and are still ours until this returns: finish and commit."""

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are ours from now on, in addition to those we had. Seek and pause them here."""

    def on_lost(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """Other members may own these partitions already: it is too late to commit. By default this calls
        `on_revoked`; a refused commit is logged, not raised."""
        return self.on_revoked(partitions)


def checked_listener(listener: Any) -> RebalanceListener:
    """The listener passed to `subscribe`: a RebalanceListener, an object with the same methods, or None."""
    if listener is None:
        return RebalanceListener()
    if isinstance(listener, type):
        raise TypeError(f"{listener.__name__} is a class: pass an instance of it to subscribe()")
    missing = [name for name in ("on_revoked", "on_assigned", "on_lost") if not callable(getattr(listener, name, None))]
    if missing:
        kind = type(listener).__name__
        raise TypeError(
            f"{kind} is not a rebalance listener: it has no {', '.join(missing)}; "
            "derive it from multilane.RebalanceListener"
        )
    found: RebalanceListener = listener
    return found
