"""An application's observer, which may be incomplete or broken."""

from __future__ import annotations

import asyncio

from multilane.clock import ManualClock
from multilane.engines.process.progress import ProcessProgress
from multilane.metrics.observer import NO_OBSERVER, Counts, Gauge, Observer, guarded, pair, takes_durations


class Breaks(Observer):
    def count(self, name, value=1, **labels):
        raise ZeroDivisionError("the exporter is broken")

    def duration(self, name, seconds, times=1, **labels):
        raise ZeroDivisionError("the exporter is broken")

    def gauges(self, source, values):
        raise ZeroDivisionError("the exporter is broken")


def test_a_broken_observer_is_logged_once_a_minute_and_stops_nothing(caplog):
    clock = ManualClock()
    counts = Counts()
    observer = pair(guarded(Breaks(), clock), counts)
    for _ in range(3):
        observer.count("a")
        observer.duration("b", 0.1)
        observer.gauges("", [Gauge("c", {}, 1.0)])
    assert counts.total("a") == 3
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "the application's observer failed" in caplog.text
    assert "ZeroDivisionError: the exporter is broken" in caplog.text
    clock.advance(60)
    observer.count("a")
    assert "9 reports are lost since the last such line" in caplog.text


async def test_progress_goes_on_beside_a_broken_observer():
    class Group:
        settled = received = 7

    clock = ManualClock()
    reporter = ProcessProgress(clock, guarded(Breaks(), clock))
    running = asyncio.create_task(reporter.run({"orders": Group()}, lambda: [Gauge("c", {}, 1.0)]))
    await asyncio.wait([running], timeout=1.5)
    assert not running.done()
    assert reporter.progress.facts()["orders"]["settled"] == 7
    running.cancel()


def test_what_is_guarded():
    class CountsAlone:
        def count(self, name, value=1, **labels):
            """Nothing else: an observer of an early version."""

    clock, counts = ManualClock(), Counts()
    assert guarded(NO_OBSERVER, clock) is NO_OBSERVER
    assert guarded(counts, clock) is counts
    broken = guarded(Breaks(), clock)
    assert guarded(broken, clock) is broken
    assert takes_durations(broken)
    old = guarded(CountsAlone(), clock)
    assert not takes_durations(old)
    old.gauges("", [])
