"""Tells which names of a configuration mean the same Kafka cluster.

Thread: none (pure).

Clusters that have a broker in common are one, and so are clusters that a third one connects. Addresses are compared
without case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

ClusterOf = Callable[[str], str]


def cluster_identities(brokers: Mapping[str, Sequence[str]]) -> ClusterOf:
    """`brokers` have ports. The result maps all names of one cluster, in any case, to one of them. A name that is not
    configured is a cluster of its own."""
    same_as: dict[str, str] = {}
    cluster_at: dict[str, str] = {}  # by address

    def identity(name: str) -> str:
        while name in same_as:
            name = same_as[name]
        return name

    for name, addresses in brokers.items():
        own = name.casefold()
        for address in addresses:
            before, now = identity(cluster_at.setdefault(address.casefold(), own)), identity(own)
            if before != now:
                same_as[now] = before
    return lambda name: identity(name.casefold())
