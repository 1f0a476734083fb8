"""Which blocks have several readers on this thread, so that what they need of them is made once.

Thread: any; what is made stays on its thread.

Triggers that share a consumer get the same block. Consumers of several groups get blocks of their own, but of the same
columns where their fetches are shared. Owns no block: one that nobody reads any more is forgotten.
"""

from __future__ import annotations

import threading
from typing import Final
from weakref import WeakValueDictionary

from multilane.wire.records.block import Block
from multilane.wire.records.made_once import MadeOnce

_ALIVE: Final[WeakValueDictionary[tuple[int, int, int, int], MadeOnce]] = WeakValueDictionary()


def made_once(block: Block) -> Block:
    """The block with what all of its readers on this thread share."""
    key = (threading.get_ident(), id(block.columns), block.start, block.stop)
    made = _ALIVE.get(key)  # it holds the columns, so their id is theirs
    if made is not None:
        return block.shared_by(made)
    block = block.made_once()
    if block.made is not None:
        _ALIVE[key] = block.made
    return block
