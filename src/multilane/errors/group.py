"""Errors of group membership and of commits.

Thread: any (values).
"""

from __future__ import annotations

from multilane.errors.root import MultilaneError


class GroupError(MultilaneError):
    """An error of group membership."""


class GroupRefused(GroupError):
    """The group rejects this member: no permission, another protocol, a timeout out of range, or a full group."""

    fatal = True


class InstanceFenced(GroupError):
    """Another process joined with our group.instance.id and replaced us (classic groups fence the old member)."""

    fatal = True


class InstanceInUse(GroupError):
    """A live member already has our group.instance.id (KIP-848 groups fence the new member)."""

    fatal = True


class CommitRefused(GroupError):
    """Offsets were not committed: this member no longer owns their partitions. Do not retry; read again."""


class CommitDuringRebalance(CommitRefused):
    """The group is rebalancing. Poll to finish the rebalance, then commit the partitions that are still assigned."""

    retriable = True


class TooManyCommits(GroupError):
    """Commits are sent faster than the coordinator accepts them. Commit less often, or wait for the futures."""

    retriable = True
