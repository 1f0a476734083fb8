"""Membership by the consumer protocol (KIP-848): the broker assigns, members reconcile.

Thread: none (pure state machines); each membership belongs to the network thread.
"""

from multilane.client.group.consumer_protocol.membership import ConsumerMembership
from multilane.client.group.consumer_protocol.states import TRANSITIONS, MemberState

__all__ = ["TRANSITIONS", "ConsumerMembership", "MemberState"]
