"""The process engine: members of consumer groups on one event loop.

It has no states of its own: what changes is the membership of each group (`client/group`), and a run ends by one stop.
"""
