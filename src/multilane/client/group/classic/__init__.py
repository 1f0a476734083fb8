"""Membership by the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup; eager and cooperative.

Thread: none (pure state machines); each membership belongs to the network thread.
"""

from multilane.client.group.classic.membership import ClassicMembership
from multilane.client.group.classic.states import TRANSITIONS, ClassicState

__all__ = ["TRANSITIONS", "ClassicMembership", "ClassicState"]
