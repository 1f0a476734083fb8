"""Membership of consumer groups: coordinators, the two protocols, assignors, committed offsets.

Thread: none.
"""
