"""What the progress of a run asks of its lanes."""

from __future__ import annotations

import pytest

from multilane.clock import ManualClock
from multilane.engines.process.progress import ProcessProgress
from multilane.metrics.observer import NO_OBSERVER, Counts, Observer, ObserverPair, takes_durations


class Durations(Observer):
    def duration(self, name: str, seconds: float, times: int = 1, **labels: str) -> None: ...


@pytest.mark.parametrize(("observer", "are_timed"), [(NO_OBSERVER, False), (Counts(), False), (Durations(), True)])
def test_calls_are_timed_only_for_an_observer_that_wants_durations(observer, are_timed):
    """The progress itself only counts: the lanes of an app that nobody measures must not pay for a timer."""
    progress = ProcessProgress(ManualClock(), observer)
    assert takes_durations(ObserverPair(observer, progress.counts)) is are_timed


def test_what_the_lanes_count_is_in_the_log_line(caplog):
    clock = ManualClock()
    progress = ProcessProgress(clock)
    progress.progress.begin(clock.monotonic())
    progress.counts.count("lanes.records.dead", 2, consumer="orders")
    progress.counts.duration("lanes.call.duration", 0.1, consumer="orders")
    with caplog.at_level("INFO"):
        progress.close({})
    assert "consumer orders, run total (0 s): settled 0, failed 0, retried 0, dead 2" in caplog.text
