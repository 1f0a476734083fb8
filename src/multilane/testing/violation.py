"""A violation: the broken guarantee, and the records that show it.

Thread: none (pure values).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Violation:
    guarantee: str
    text: str

    def __str__(self) -> str:
        return f"{self.guarantee}: {self.text}"
