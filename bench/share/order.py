"""What a child of `bench.sharing` is told, and the systems there are.

Thread: none (pure).

Every system has the same triggers: functions that each get every record of one topic and count it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import asdict, dataclass
from typing import Final

SINGLE: Final = "single"
BATCH: Final = "batch"
COLUMNS: Final = "columns"
WINDOW: Final = 500  # records of a call at most, where a system takes several at once

SHARED: Final = "shared"  # one group, `sharing: same-topic`
SEPARATE: Final = "separate"  # a group for each trigger, sharing off
CONFLUENT_POLL: Final = "confluent-poll"
CONFLUENT_CONSUME: Final = "confluent-consume"
AIOKAFKA: Final = "aiokafka"
OURS: Final = (SHARED, SEPARATE)
CONFLUENT: Final = (CONFLUENT_POLL, CONFLUENT_CONSUME)
SYSTEMS: Final = (*OURS, *CONFLUENT, AIOKAFKA)


@dataclass(frozen=True, slots=True)
class Order:
    """`hangs`: one more trigger, the last, never returns from its first record, and its count is left out."""

    system: str
    bootstrap: str
    topic: str
    group: str
    triggers: int
    shape: str = SINGLE
    hangs: bool = False

    @property
    def port(self) -> int:
        return int(self.bootstrap.rpartition(":")[2])

    def group_of(self, number: int) -> str:
        return self.group if self.system == SHARED else f"{self.group}-{number}"

    def text(self) -> str:
        return json.dumps(asdict(self))


def new_group() -> str:
    """It reads its topic from the beginning."""
    return f"bench-{uuid.uuid4().hex[:12]}"
