"""The guarantees of consuming, as objects that judge a stream of events: for tests of engines and of applications.

Thread: none (pure), except `journal`, which writes and reads files.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multilane.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from multilane.testing.events import (
        Committed,
        Copied,
        Ended,
        Event,
        Killed,
        Left,
        Produced,
        Rebalanced,
        RecordPlace,
        Skipped,
        Started,
        in_order,
    )
    from multilane.testing.guarantees import (
        AtLeastOnce,
        Guarantee,
        NoCommitPastUnsettled,
        NoDuplicateWithoutRestart,
        NoSameKeyOverlap,
        violations,
    )
    from multilane.testing.journal import Journal, JournalReader
    from multilane.testing.key_order import PerKeyOrder
    from multilane.testing.violation import Violation

_HOMES = {
    "AtLeastOnce": "multilane.testing.guarantees",
    "Committed": "multilane.testing.events",
    "Copied": "multilane.testing.events",
    "Ended": "multilane.testing.events",
    "Event": "multilane.testing.events",
    "Guarantee": "multilane.testing.guarantees",
    "Journal": "multilane.testing.journal",
    "JournalReader": "multilane.testing.journal",
    "Killed": "multilane.testing.events",
    "Left": "multilane.testing.events",
    "NoCommitPastUnsettled": "multilane.testing.guarantees",
    "NoDuplicateWithoutRestart": "multilane.testing.guarantees",
    "NoSameKeyOverlap": "multilane.testing.guarantees",
    "PerKeyOrder": "multilane.testing.key_order",
    "Produced": "multilane.testing.events",
    "Rebalanced": "multilane.testing.events",
    "RecordPlace": "multilane.testing.events",
    "Skipped": "multilane.testing.events",
    "Started": "multilane.testing.events",
    "Violation": "multilane.testing.violation",
    "in_order": "multilane.testing.events",
    "violations": "multilane.testing.guarantees",
}

__all__ = [
    "AtLeastOnce",
    "Committed",
    "Copied",
    "Ended",
    "Event",
    "Guarantee",
    "Journal",
    "JournalReader",
    "Killed",
    "Left",
    "NoCommitPastUnsettled",
    "NoDuplicateWithoutRestart",
    "NoSameKeyOverlap",
    "PerKeyOrder",
    "Produced",
    "Rebalanced",
    "RecordPlace",
    "Skipped",
    "Started",
    "Violation",
    "in_order",
    "violations",
]

__getattr__, __dir__ = lazy_exports(__name__, _HOMES)
