"""How long brokers of tests wait for the silent."""

from __future__ import annotations

# Under KIP-848 the brokers say how long a silent member is waited for. The least they allow is for tests of silence;
# classic groups say it themselves.
SHORT_SESSIONS = {"group.consumer.heartbeat.interval.ms": "200", "group.consumer.session.timeout.ms": "3000"}
# A broker that nobody stops, on two cores that are full: its controller must not think that it is gone.
NEVER_STOPPED = {"broker.session.timeout.ms": "30000"}
