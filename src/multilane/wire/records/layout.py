"""The constants that the kernels share with their Python callers: columns, statuses, sizes.

Thread: none (constants).
Owns: the meaning of every column of the batch table, of the decode plan and of the kernels' tallies.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

HEADER_SIZE: Final = 61  # a v2 batch's header, up to the first record
BATCH_OVERHEAD: Final = 12  # base offset and length: the length field does not count them
BODY_MINIMUM: Final = 7  # the smallest record: seven one-byte fields
CRC_START: Final = 21  # the checksum covers everything after itself
MARK_SIZE: Final = 16
MAX_BASE_OFFSET: Final = (1 << 63) - 1 - (1 << 32)  # base + delta + 1 cannot overflow
MAX_BUFFER_BYTES: Final = (1 << 31) - 1  # positions in a view are int32
COLUMN_BYTES: Final = 56  # the size of a row's columns: offset, timestamp, two views, header span

CODEC_MASK: Final = 0x07
APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
# Bit 6 marks the base timestamp as the cleaner's delete horizon. It only occurs with markers and tombstones, and deltas
# still count from it, so reading needs no special case.


class RowWord(IntEnum):
    """Columns of `BatchTable.rows`."""

    POSITION = 0
    LENGTH = 1  # of the whole batch, header included
    BASE_OFFSET = 2
    LAST_DELTA = 3
    ATTRIBUTES = 4
    BASE_TIMESTAMP = 5
    MAX_TIMESTAMP = 6
    PRODUCER_ID = 7
    PRODUCER_EPOCH = 8
    COUNT = 9
    CRC = 10
    LEADER_EPOCH = 11


COLUMNS: Final = len(RowWord)


class PlanWord(IntEnum):
    """Columns of the decode plan: one row for every batch that has rows."""

    ARENA = 0  # 1 if the records were decompressed, 0 if they are in the frame
    BUFFER = 1  # the buffer of the block that views refer to
    START = 2  # of the records; -1: after the mark that ended the previous batch
    LIMIT = 3  # end of the records; -1: ends at a mark
    BASE_OFFSET = 4
    LAST_DELTA = 5
    TIMESTAMP = 6  # base timestamp, or the one timestamp of all rows under log append time
    APPEND_TIME = 7
    COUNT = 8
    EPOCH = 9
    FIRST_ROW = 10  # written by the kernel
    BATCH = 11  # index in the batch table


PLAN_COLUMNS: Final = len(PlanWord)


class TallyWord(IntEnum):
    """The results of `decode_batches`."""

    ROWS = 0
    FAILED = 1  # index of the plan that could not be read, or -1
    STATUS = 2
    NULL_KEYS = 3
    NULL_VALUES = 4
    WITH_HEADERS = 5


TALLY_SIZE: Final = len(TallyWord)
STATE_SIZE: Final = 8  # words for the kernel's position


class Status(IntEnum):
    """Why a kernel stopped."""

    OK = 0
    PARTIAL = 1
    BAD_LENGTH = 2
    OLD_FORMAT = 3
    BAD_BASE = 4
    BAD_LAST_DELTA = 5
    BAD_COUNT = 6
    RECORD_LENGTH = 7
    VARINT = 8
    OFFSET_DELTA = 9
    KEY_LENGTH = 10
    VALUE_LENGTH = 11
    HEADER_COUNT = 12
    HEADER_KEY = 13
    HEADER_VALUE = 14
    RECORD_REST = 15
    BATCH_REST = 16
    OVERSIZED = 17


class KeptWord(IntEnum):
    """Columns of a kept row: eight words. The value follows the key."""

    OFFSET = 0
    TIMESTAMP = 1
    TIMESTAMP_TYPE = 2
    AT = 3  # the position of its key in the arena
    KEY_SIZE = 4  # -1: null
    VALUE_SIZE = 5
    CHAIN = 6  # -1: the row is free
    NEXT = 7  # the next row of its chain, or the next free row; -1: none, -2: the row is taken


KEPT_COLUMNS: Final = len(KeptWord)


class ChainWord(IntEnum):
    """Columns of a chain: the kept rows of one key."""

    HASH = 0
    FIRST = 1  # the first waiting row; of a free chain: the next free chain
    LAST = 2
    WAITING = 3
    IN_WORK = 4  # 1 while rows of it are taken and not released


CHAIN_COLUMNS: Final = len(ChainWord)


class KeepWord(IntEnum):
    """The state of all kept rows together."""

    LANES = 0
    SECRET = 1  # of the hashes: two words
    SECOND_SECRET = 2
    ROWS = 3  # created so far; the same for chains
    FREE_ROW = 4  # -1: none
    CHAINS = 5
    FREE_CHAIN = 6
    READY_AT = 7  # the start of the ring of ready chains
    READY = 8  # how many chains are ready
    TAKEABLE = 9  # rows of ready chains
    ARENA_END = 10
    LIVE_BYTES = 11
    KEY_BYTES = 12  # of the rows taken last
    VALUE_BYTES = 13


KEEP_SIZE: Final = len(KeepWord)
WINDOW_BYTES: Final = 1 << 30  # the limit of a window, so that Arrow's int32 can count them; a single row may have more

# Why `unlz4` stopped.
FULL: Final = -1  # the output has no room for the next frame
ODD: Final = -2  # the next frame is not readable for this kernel

REASONS: Final[dict[int, str]] = {
    Status.PARTIAL: "the first batch is truncated",
    Status.BAD_LENGTH: "the batch's length is too small",
    Status.OLD_FORMAT: "its record format is not v2",
    Status.BAD_BASE: "the batch's base offset is negative, too large or below the end of the batch before",
    Status.BAD_LAST_DELTA: "the batch's last offset delta is negative",
    Status.BAD_COUNT: "the batch's record count is negative or more than its bytes allow",
    Status.RECORD_LENGTH: "a record's length is too small or runs past the end of the batch",
    Status.VARINT: "a varint is too long or runs past the end",
    Status.OFFSET_DELTA: "a record's offset delta is negative, does not grow or is past the batch's last",
    Status.KEY_LENGTH: "a key runs past the end of its record",
    Status.VALUE_LENGTH: "a value runs past the end of its record",
    Status.HEADER_COUNT: "a record's header count is negative or more than its bytes allow",
    Status.HEADER_KEY: "a header's key is null or runs past the end of its record",
    Status.HEADER_VALUE: "a header's value runs past the end of its record",
    Status.RECORD_REST: "a record's fields do not fill its length",
    Status.BATCH_REST: "the records do not fill the batch",
    Status.OVERSIZED: "the batch decompresses to more than the cap",
}
