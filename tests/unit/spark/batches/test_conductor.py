"""Whom a conductor listens to."""

from __future__ import annotations

from multilane.spark.batches.conductor import Conductor


class Line:
    def send(self, kind, **fields):
        pass


def test_the_keeper_of_a_query_that_has_failed_does_not_speak_for_the_next_one():
    """It takes seconds to leave its groups, and by then there is another."""
    conductor, former, current = Conductor(), Line(), Line()
    conductor._drain_seconds = 60.0
    conductor._on_line(former)
    conductor._on_line(current)
    conductor._on_message(former, {"kind": "failed", "error": "gone", "is_refused": True})
    assert conductor._failure is None
    conductor._drain()
    conductor._on_message(former, {"kind": "ended"})
    assert not conductor._is_over
    conductor._on_message(current, {"kind": "ended"})
    assert conductor._is_over
