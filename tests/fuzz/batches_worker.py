"""Mutated record batches against the decoder; one process of the fuzz run.

Every case starts as a few valid batches of random content, codec and flags, gets a few mutations (of the bytes as they
travel, or of the records before they are compressed) and must then either be refused with a typed error or give the
rows that the reference reader and kafka-python's give. In half of the cases the checksums are made right again, so
that the kernel really meets the damage. The process caps its own address space at 64 MB above what it has after the
imports and ends itself when a case takes ten seconds, so that a crash, a hang and a hostile allocation all show as an
exit code other than 0.

    python tests/fuzz/batches_worker.py --count 10000 --seed 1

A failing case is named by its number; `--first <number> --count 1` with the same seed makes it again.
"""

from __future__ import annotations

import argparse
import faulthandler
import resource
import signal
import struct
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import google_crc32c
import numpy as np

from batch_builder import APPEND_TIME, DELETE_HORIZON, TRANSACTIONAL, Batch, Rec, encode_record, marker
from multilane.errors import RecordBatchError
from multilane.wire.records.batches import BatchTable, scan
from multilane.wire.records.block import Block
from multilane.wire.records.decode import DecodeOptions, decode, load_kernels
from multilane.wire.records.layout import RowWord
from reference_reader import kafka_python_rows
from reference_reader import read as reference

MEMORY: Final = 64 << 20
SECONDS_PER_CASE: Final = 10
OPTIONS: Final = {"max_decompressed_bytes": 4 << 20, "max_block_bytes": 16 << 20}
_SIZES: Final = (0, 1, 3, 4, 11, 12, 13, 20, 63, 64, 65, 300)
_WORDS: Final = (b"order ", b"created ", b"amount=", b"x", b"\0\0\0\0", b"a longer word that comes again ")
_EVIL: Final = (-1, 0, 1, 2, 48, 49, 61, 127, 128, 255, 256, 1 << 16, (1 << 31) - 1, -(1 << 31))


class Wrong(AssertionError):
    """The decoder gave something that it must not give."""


# --- valid spans -----------------------------------------------------------------------------------------------------


def _content(random: Random) -> bytes | None:
    if random.random() < 0.05:  # something to compress
        return b"".join(random.choices(_WORDS, k=random.choice((20, 200))))
    return None if random.random() < 0.15 else random.randbytes(random.choice(_SIZES))


def _record(random: Random, delta: int) -> Rec:
    headers = [
        (random.choice((b"", b"h", "\u00e9".encode())), _content(random)) for _ in range(random.choice((0, 0, 1, 3)))
    ]
    return Rec(delta, _content(random), _content(random), random.choice((0, 1, -7, 1 << 40)), headers)


def make_span(random: Random) -> list[Batch]:
    """One to four batches; one codec for all (a train) more often than not."""
    codec = random.randrange(5)
    base = random.choice((0, 7, 1 << 40))
    batches: list[Batch] = []
    for _ in range(random.randint(1, 4)):
        if random.random() < 0.1:
            batches.append(marker(random.randrange(3), base, 5))
        else:
            batches.append(_data_batch(random, base, codec if random.random() < 0.8 else random.randrange(5)))
        base = batches[-1].end + random.choice((0, 0, 3))
    return batches


def _data_batch(random: Random, base: int, codec: int) -> Batch:
    records = [_record(random, i) for i in range(random.choice((0, 1, 2, 5, 20))) if random.random() < 0.9]
    flags = random.choice((0, 0, APPEND_TIME, DELETE_HORIZON, TRANSACTIONAL))
    extra = random.choice((0, 0, 4))
    last = max((r.delta for r in records), default=0) + extra
    xerial, sums, linked = random.random() < 0.7, random.random() < 0.3, random.random() < 0.3
    how = {"xerial": xerial, "chunk": 200, "sums": sums, "linked": linked}
    return Batch(records, base, codec, flags, producer_id=5, last_delta=last, **how)


# --- mutations -------------------------------------------------------------------------------------------------------


def mutate(data: bytearray, random: Random, other: bytes) -> None:
    """One change in place: bit flips, a length or another field rewritten, cut, grown, spliced."""
    if not data:
        data += random.randbytes(5)
        return
    at = random.randrange(len(data))
    match random.randrange(7):
        case 0:
            data[at] ^= 1 << random.randrange(8)
        case 1:
            data[at] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        case 2:
            struct.pack_into(">i", data, min(at, max(len(data) - 4, 0)), random.choice(_EVIL)) if len(
                data
            ) >= 4 else None
        case 3:
            del data[at : at + random.choice((1, 2, 10, len(data)))]
        case 4:
            data[at:at] = random.choice((b"\xff" * 12, b"\x80" * 5, random.randbytes(random.randint(1, 8))))
        case 5:
            start = random.randrange(len(other)) if other else 0
            data[at : at + 30] = other[start : start + random.randint(1, 60)]
        case _:
            end = min(len(data), at + random.randint(1, 16))
            data[at:end] = data[at:end] * random.choice((2, 3, 40))


def _mutate_header(data: bytearray, random: Random) -> None:
    """A header field of a batch gets a value that means trouble."""
    field, kind = random.choice(
        ((0, ">q"), (8, ">i"), (12, ">i"), (16, ">b"), (21, ">h"), (23, ">i"), (27, ">q"), (57, ">i"))
    )
    value = random.choice(_EVIL)
    bits = 8 * struct.calcsize(kind)
    value = (value + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    struct.pack_into(kind, data, field, value)


def _broken_body(batch: Batch, random: Random) -> Batch:
    """The same batch with damage under the compression."""
    body = bytearray(b"".join(map(encode_record, batch.records)))
    source = bytes(body)
    for _ in range(random.randint(1, 3)):
        mutate(body, random, source)
    return batch.with_(body=bytes(body))


def make_case(random: Random) -> bytes:
    batches = make_span(random)
    style = random.randrange(4)
    if style == 0:
        victim = random.randrange(len(batches))
        batches[victim] = _broken_body(batches[victim], random)
        return b"".join(b.build() for b in batches)
    built = [bytearray(b.build()) for b in batches]
    if style == 1:
        _mutate_header(random.choice(built), random)
    elif style == 2:
        target = random.choice(built)
        tail = bytearray(target[61:])
        mutate(tail, random, bytes(random.choice(built)))
        target[61:] = tail
        struct.pack_into(">i", target, 8, len(target) - 12)
    if random.random() < 0.5:
        for one in built:
            mend_checksum(one)
    data = bytearray().join(built)
    if style == 3:
        for _ in range(random.randint(1, 3)):
            mutate(data, random, bytes(data))
    return bytes(data)


def mend_checksum(batch: bytearray) -> None:
    if len(batch) >= 21:
        struct.pack_into(">I", batch, 17, google_crc32c.value(bytes(batch[21:])))


# --- one case --------------------------------------------------------------------------------------------------------


def check(data: bytes, random: Random) -> str:
    """Decode one case; what became of it, or Wrong."""
    frame = np.frombuffer(data, np.uint8).copy()
    options = DecodeOptions(check_crc=random.random() < 0.5, read_committed=random.random() < 0.3, **OPTIONS)
    aborted = [(5, random.choice((0, 7, 1 << 40)))] if random.random() < 0.1 else []
    fetch_offset = random.choice((0, 0, 0, 3, 1 << 40))
    try:
        table = scan(frame, 0, len(data), fetch_offset)
        block = decode(frame, table, options, topic="t", partition=0, fetch_offset=fetch_offset, aborted=aborted)
    except RecordBatchError as error:
        return f"refused: {type(error).__name__}"
    read = data[: _end_of_good(table, block)]
    if block.error is not None and block.error.offset != block.next_offset:
        raise Wrong(f"the error is at {block.error.offset}, the block ends at {block.next_offset}")
    whole = _compare(read, block, fetch_offset, aborted if options.read_committed else [])
    return whole if block.error is None else f"part read, then {type(block.error).__name__}"


def _compare(data: bytes, block: Block, fetch_offset: int, aborted: list[tuple[int, int]]) -> str:
    """The rows of a block must be those of the batches before its end, as others read them."""
    ours = [(r.offset, r.timestamp, r.timestamp_type, r.key, r.value, r.headers) for r in block.records()]
    block.keys.validate(full=True)
    block.values.validate(full=True)
    reading = reference(data, fetch_offset, aborted)
    if ours != reading.rows:
        raise Wrong(f"{len(ours)} rows differ from the reference reader's {len(reading.rows)}")
    if block.next_offset != reading.next_offset:
        raise Wrong(f"next offset {block.next_offset}, not {reading.next_offset}")
    if aborted:
        return "equal to the reference (kafka-python's reader does not filter)"
    if reading.oddities:
        return "equal to the reference, kafka-python reads it otherwise"
    if ours != kafka_python_rows(data, fetch_offset):
        raise Wrong("rows differ from kafka-python's")
    return "equal"


def _end_of_good(table: BatchTable, block: Block) -> int:
    """Where the batches end that the block says it has read."""
    ends = table.rows[:, RowWord.BASE_OFFSET] + table.rows[:, RowWord.LAST_DELTA] + 1
    good = table.rows[ends <= block.next_offset]
    return int(good[-1, RowWord.POSITION] + good[-1, RowWord.LENGTH]) if len(good) else 0


def run(count: int, seed: int, first: int = 0) -> Counter[str]:
    outcomes: Counter[str] = Counter()
    for number in range(first, first + count):
        random = Random(f"{seed}/{number}")  # noqa: S311 - repeatable on purpose
        signal.alarm(SECONDS_PER_CASE)  # kills the process, also when a kernel never returns
        try:
            outcomes[check(make_case(random), random)] += 1
        except BaseException as error:
            sys.stderr.write(f"case {number} of seed {seed}: {type(error).__name__}: {error}\n")
            raise
    signal.alarm(0)
    return outcomes


def _cap_memory() -> int:
    """Cap the address space at what it is now and some more; what it is now, in KB."""
    now = _status("VmSize")
    limit = now * 1024 + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return now


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field))


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="mutated record batches")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    chosen = parser.parse_args(argv)
    faulthandler.enable()
    faulthandler.register(signal.SIGALRM, chain=True)
    load_kernels()
    run(300, seed=-1)  # everything that is loaded on first use is loaded before memory is capped
    before = _cap_memory()
    outcomes = run(chosen.count, chosen.seed, chosen.first)
    grown = (_status("VmPeak") - before) // 1024  # the warm-up's peak counts too: nothing resets it
    sys.stdout.write(f"at most {grown} MB of address space above the start\n")
    for outcome, times in sorted(outcomes.items()):
        sys.stdout.write(f"{times:8} {outcome}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
