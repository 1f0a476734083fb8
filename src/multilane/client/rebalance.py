"""What an application may do when its partitions change hands.

Thread: application: poll(), unsubscribe() and close() call these, never another thread.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multilane.types import TopicPartition


class RebalanceListener:
    """Override what you need. With an AsyncConsumer the methods may be coroutine functions.

    All calls of the consumer but poll() may be made in here. An exception is raised by the poll() that called, when the
    rebalance has gone on all the same.
    """

    def on_revoked(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These are about to be given to others, and are still ours until this returns: finish, and commit."""

    def on_assigned(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These are ours from now on, besides those we had. They may be sought and paused here."""

    def on_lost(self, partitions: frozenset[TopicPartition]) -> Awaitable[None] | None:
        """These may be others' already: it is too late to commit. By default treated like a revocation; a commit that
        is refused is logged then, and not raised."""
        return self.on_revoked(partitions)


def checked_listener(listener: Any) -> RebalanceListener:
    """What `subscribe` was given: a listener, something with the same methods, or nothing."""
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
