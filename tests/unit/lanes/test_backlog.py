"""Empty retry partitions need no scan."""

from __future__ import annotations

import pytest

from multilane.clock import ManualClock
from multilane.errors import ConfigError
from multilane.lanes.backlog import Backlogs
from multilane.types import TopicPartition

FIRST, SECOND = TopicPartition("retry", 0), TopicPartition("retry", 1)


class Ends:
    def __init__(self) -> None:
        self.ends = {FIRST: 5, SECOND: 7}
        self.requests = 0

    async def end_offsets(self, partitions):
        self.requests += 1
        return {p: self.ends[p] for p in partitions}


@pytest.fixture
def backlogs():
    """A scan would create a consumer with these properties, which raises."""
    return Backlogs({"no.such.property": 1}, ManualClock())


async def test_one_look_up_serves_all_partitions_that_begin_together(backlogs):
    ends = Ends()
    await backlogs.look_up(ends, [FIRST, SECOND])
    assert len(await backlogs.parking(FIRST, 5, ())) == 0
    assert ends.requests == 1


async def test_a_partition_with_records_is_scanned(backlogs):
    await backlogs.look_up(Ends(), [FIRST, SECOND])
    with pytest.raises(ConfigError):
        await backlogs.parking(SECOND, 6, ())


async def test_without_a_look_up_each_is_scanned(backlogs):
    with pytest.raises(ConfigError):
        await backlogs.parking(FIRST, 5, ())


async def test_an_end_is_valid_for_seconds_only():
    clock = ManualClock()
    backlogs = Backlogs({"no.such.property": 1}, clock)
    await backlogs.look_up(Ends(), [FIRST])
    clock.advance(5.0)
    with pytest.raises(ConfigError):
        await backlogs.parking(FIRST, 5, ())
