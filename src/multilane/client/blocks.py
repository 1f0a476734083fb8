"""The result of a poll: blocks of columns, and views over all of them.

Thread: any (immutable).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

if TYPE_CHECKING:
    import pyarrow as pa

    from multilane.wire.records.block import Block
    from multilane.wire.records.record import Record


class Blocks(Sequence["Block"]):
    """A sequence of blocks, false when empty. Rows of one partition are in log order."""

    __slots__ = ("_blocks",)

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self._blocks = tuple(blocks)

    @overload
    def __getitem__(self, index: int) -> Block: ...
    @overload
    def __getitem__(self, index: slice) -> Blocks: ...
    def __getitem__(self, index: int | slice) -> Block | Blocks:
        return Blocks(self._blocks[index]) if isinstance(index, slice) else self._blocks[index]

    def __len__(self) -> int:
        return len(self._blocks)

    def __repr__(self) -> str:
        return f"Blocks({len(self)} blocks, {self.rows} rows)"

    @property
    def rows(self) -> int:
        return sum(len(b) for b in self._blocks)

    def records(self) -> Iterator[Record]:
        """Every record, created in chunks on demand."""
        for block in self._blocks:
            yield from block.records()

    def arrow(self, *, copy: bool = False) -> pa.Table:
        """One table over all blocks. Without `copy`, binary columns are views that keep the received bytes alive."""
        import pyarrow as pa

        from multilane.wire.records.arrow import schema

        return pa.Table.from_batches([b.arrow(copy=copy) for b in self._blocks], schema(copy=copy))
