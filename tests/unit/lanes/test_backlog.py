"""What lies in a retry partition is read when it is assigned; brokers may go meanwhile."""

from __future__ import annotations

import pytest

from multilane.errors import OperationTimeout
from multilane.lanes import backlog
from multilane.types import TopicPartition

PLACE = TopicPartition("t.retry", 0)


class Gone:
    """A consumer whose broker tells where the log ends, and then nothing any more."""

    def __init__(self, properties: object) -> None:
        self.polls = 0

    async def __aenter__(self) -> Gone:
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing to close."""

    async def beginning_offsets(self, partitions):
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions):
        return dict.fromkeys(partitions, 10)

    def assign(self, partitions):
        """As asked."""

    def seek(self, partition, offset):
        """As asked."""

    async def position(self, partition):
        return 3

    async def poll(self, timeout):
        self.polls += 1
        if self.polls > 1_000:
            raise AssertionError("it would go on for ever")
        return []


async def test_a_broker_that_goes_meanwhile_is_an_error(monkeypatch):
    """The scan went on for ever: no partition began, and a stop was not noticed."""
    monkeypatch.setattr(backlog, "AsyncConsumer", Gone)
    with pytest.raises(OperationTimeout, match="was read up to offset 3 of 10"):
        await backlog.scan({}, PLACE, 0, ())
