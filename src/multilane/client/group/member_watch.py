"""What a group client notes about its member after each poll: its status, its rebalances, and whether it stays idle.

Thread: network.

Writes the `MemberStatus` that the application reads. Never changes the membership.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from multilane.client.events import BackgroundEvent, EventQueue
from multilane.client.group.membership import Membership, MemberStatus
from multilane.client.net.requests import NEVER
from multilane.config.tuning import of_assignment
from multilane.logs import logger

if TYPE_CHECKING:
    from multilane.errors import MultilaneError
    from multilane.metrics.observer import Observer

log = logger(__name__)

_IDLE_FOR_GOOD: Final = 30.0
_TURN: Final = 1.0  # seconds by which the time of a turn of the loop may lag


class MemberWatch:
    def __init__(
        self,
        group: str,
        member_status: MemberStatus,
        background: EventQueue[BackgroundEvent],
        observer: Observer,
        readable_partitions: Callable[[], int],
    ) -> None:
        self._group = group
        self._member_status = member_status
        self._background = background
        self._observer = observer
        self._readable_partitions = readable_partitions
        self._idle_since = NEVER
        self._rebalancing_since: float | None = None

    def note(self, member: Membership, session: float | None, refusal: MultilaneError | None, now: float) -> None:
        self._note_member_status(member, session, refusal, now)
        self._note_rebalance(member, now)
        self._note_idleness(member, now)

    def _note_member_status(
        self, member: Membership, session: float | None, refusal: MultilaneError | None, now: float
    ) -> None:
        identity = member.identity
        before, self._member_status.identity = self._member_status.identity, identity
        expired, self._member_status.fenced_after = self._member_status.fenced_after, member.fenced_after(session)
        if expired <= now + _TURN and expired < self._member_status.fenced_after:
            self._background.ring()  # a waiting poll may hand out its held-back records again
        self._member_status.refusal = refusal
        if identity is not None and (before is None or before.member_id != identity.member_id):
            how = "KIP-848" if identity.protocol == "consumer" else "the classic protocol"
            log.info("group %s: joined as member %s with %s", self._group, identity.member_id, how)

    def _note_rebalance(self, member: Membership, now: float) -> None:
        """Reported when the member is stable again. One that leaves meanwhile reports nothing."""
        if member.is_rebalancing:
            self._rebalancing_since = now if self._rebalancing_since is None else self._rebalancing_since
            return
        since, self._rebalancing_since = self._rebalancing_since, None
        if since is not None and member.identity is not None:
            self._observer.duration("group.rebalance.duration", now - since, group=self._group)

    def _note_idleness(self, member: Membership, now: float) -> None:
        """A member that has just joined may have no partitions for a while: others have yet to release them."""
        if member.identity is None or member.owned:
            self._idle_since = now
        elif now - self._idle_since >= _IDLE_FOR_GOOD:
            self._idle_since = NEVER  # once is enough
            for advice in of_assignment(0, self._readable_partitions()):
                log.warning("group %s: %s", self._group, advice)
