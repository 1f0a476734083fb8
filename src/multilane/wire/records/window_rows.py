"""A window of rows: a sequence of records that are created only on access.

Thread: any.

What handles a window without looking at its records (marks, notes, settling, columns) uses the rest of this interface.
Owns nothing.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

from multilane.wire.records.keyed_storage import Packed
from multilane.wire.records.record import Record

if TYPE_CHECKING:
    import pyarrow as pa


class WindowRows(Sequence[Record]):
    __slots__ = ()

    @property
    @abstractmethod
    def topic(self) -> str: ...

    @property
    @abstractmethod
    def partition(self) -> int: ...

    @property
    @abstractmethod
    def records(self) -> list[Record]: ...

    @abstractmethod
    def packed_offsets(self) -> Packed: ...

    @abstractmethod
    def reach(self) -> tuple[int, int]:
        """The lowest and the highest offset."""

    @abstractmethod
    def batch(self) -> pa.RecordBatch:
        """Plain columns that keep nothing of the log alive."""

    @overload
    def __getitem__(self, at: int) -> Record: ...
    @overload
    def __getitem__(self, at: slice) -> list[Record]: ...
    def __getitem__(self, at: int | slice) -> Record | list[Record]:
        return self.records[at]

    def __iter__(self) -> Iterator[Record]:
        return iter(self.records)


def offsets_of(records: Sequence[Record]) -> Packed | list[int]:
    """The offsets of records, without creating records of rows."""
    if isinstance(records, WindowRows):
        return records.packed_offsets()
    return [record.offset for record in records]
