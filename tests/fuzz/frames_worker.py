"""Mutated response frames against the two readers of frames; one process of the fuzz run.

Every frame starts as a random, valid response of a random API and version, gets a few mutations, and must then either
be refused with a typed error or be read. A Fetch response goes through both readers, which must agree. The process
caps its own address space at 64 MB above what it has after the imports and ends itself when one frame takes ten
seconds, so that a crash, a hang and a hostile allocation all show as an exit code other than 0.

    python tests/fuzz/frames_worker.py --count 20000 --seed 1

A failing frame is named by its number; `--first <number> --count 1` with the same seed makes it again.
"""

from __future__ import annotations

import argparse
import dataclasses
import faulthandler
import io
import resource
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from types import NoneType, UnionType
from typing import Any, Final, get_args, get_origin

import numpy as np
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from multilane.errors import FrameError, UnknownBrokerCode
from multilane.wire.fetch import FetchedFrame, FetchedPartition, walk_fetch_response
from multilane.wire.messages import ApiKey, decode_response, request_type, response_type
from multilane.wire.versions import SPOKEN

CORRELATION_ID: Final = 77
MEMORY: Final = 64 << 20
SECONDS_PER_FRAME: Final = 10

# --- random valid entities -------------------------------------------------------------------------------------------

_TEXTS: Final = ("", "a", "topic-1", "broker.example", "\u00e9t\u00e9 \u6771\u4eac \U0001f980", "x" * 130)
_EDGES: Final = (-1, 0, 1, 127, 128, 255)


def _integer(bits: int) -> Callable[[Random], int]:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    return lambda random: min(high, random.choice((*_EDGES, low, high, random.randint(low, high))))


def _text(random: Random) -> str:
    return random.choice((*_TEXTS, "".join(random.choices("abc-._9", k=random.randint(0, 12)))))


def _blob(random: Random) -> bytes:
    return random.randbytes(random.choice((0, 1, 5, 126, 127, 128, 300)))


_VALUES: Final[dict[str, Callable[[Random], object]]] = {
    "bool": lambda random: random.random() < 0.5,
    "int8": _integer(8),
    "int16": _integer(16),
    "int32": _integer(32),
    "int64": _integer(64),
    "string": _text,
    "bytes": _blob,
    "records": _blob,
    "uuid": lambda random: uuid.UUID(int=random.getrandbits(128) | 1),
    "error_code": lambda random: random.choice(tuple(ErrorCode)),
    "timedelta_i32": lambda random: timedelta(milliseconds=random.randint(-(2**31), 2**31 - 1)),
    "timedelta_i64": lambda random: timedelta(milliseconds=random.randint(0, 10**12)),
    "datetime_i64": lambda random: datetime.fromtimestamp(random.randint(0, 2**32), UTC),
}


def make_entity(kind: type[Any], random: Random) -> Any:
    """A random instance of a kio schema class; small, but with edges of every length and number."""
    values = {}
    for field in dataclasses.fields(kind):
        if "tag" in field.metadata and random.random() < 0.5:
            values[field.name] = field.default
        else:
            values[field.name] = _make_field(field, random)
    return kind(**values)


def _make_field(field: dataclasses.Field[Any], random: Random) -> Any:
    kind: Any = field.type
    if get_origin(kind) is UnionType:
        if "tag" not in field.metadata and random.random() < 0.2:
            return None
        (kind,) = (arm for arm in get_args(kind) if arm is not NoneType)
    kafka_type = field.metadata.get("kafka_type")
    if get_origin(kind) is tuple:
        element = get_args(kind)[0]
        return tuple(_make_value(element, kafka_type, random) for _ in range(_count(element, random)))
    return _make_value(kind, kafka_type, random)


def _count(element: Any, random: Random) -> int:
    """Mostly few; sometimes so many that a compact length takes two bytes, where that does not multiply."""
    flat = not dataclasses.is_dataclass(element) or all("kafka_type" in f.metadata for f in dataclasses.fields(element))
    return 130 if flat and random.random() < 0.03 else random.choice((0, 1, 1, 2, 4))


def _make_value(kind: Any, kafka_type: str | None, random: Random) -> Any:
    return make_entity(kind, random) if kafka_type is None else _VALUES[kafka_type](random)


def frame_of(entity: Any, correlation_id: int = CORRELATION_ID) -> bytes:
    """The frame a broker would send: response header and body, without the length in front."""
    header = type(entity).__header_schema__
    out = io.BytesIO()
    entity_writer(header)(out, header(correlation_id=correlation_id))
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def response_kinds() -> list[tuple[ApiKey, int]]:
    """Every API and version that the client speaks."""
    return [(api, version) for api, (low, high) in SPOKEN.items() for version in range(low, high + 1)]


# --- mutations -------------------------------------------------------------------------------------------------------

_HOSTILE: Final = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xfe",
    b"\x80\x00\x00\x00",
    b"\x00\x10\x00\x00",
    b"\x7f\xff",
    b"\xff\xff",
    b"\xff\xfe",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\x7f",
    b"\x80\x80\x80\x80\x80\x80\x01",
    b"\x80\x00",
    b"\x00",
    b"\x01",
)


def mutate(frame: bytes, random: Random) -> bytes:
    """The frame after one to four small damages."""
    data = bytearray(frame)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        # Half of the damage falls near the start, where the lengths that rule the rest are.
        reach = len(data) if random.random() < 0.5 else min(len(data), 40)
        at = random.randrange(4, max(reach, 5))
        random.choice((_flip, _overwrite, _overwrite, _cut, _insert, _repeat))(data, at, random)
    return bytes(data)


def _flip(data: bytearray, at: int, random: Random) -> None:
    if at < len(data):
        data[at] ^= 1 << random.randrange(8)


def _overwrite(data: bytearray, at: int, random: Random) -> None:
    hostile = random.choice(_HOSTILE)
    data[at : at + len(hostile)] = hostile


def _cut(data: bytearray, at: int, random: Random) -> None:
    del data[at : random.choice((len(data), at + 1, at + random.randint(1, 16)))]


def _insert(data: bytearray, at: int, random: Random) -> None:
    data[at:at] = random.choice((random.randbytes(random.randint(1, 8)), random.choice(_HOSTILE)))


def _repeat(data: bytearray, at: int, random: Random) -> None:
    data[at:at] = data[at : at + random.randint(1, 64)]


# --- what must hold --------------------------------------------------------------------------------------------------


class Disagreement(AssertionError):
    """The two readers of a Fetch response say different things."""


def read_frame(api: ApiKey, version: int, frame: bytes) -> str:
    """Read one frame as the client would; the outcome's name."""
    kind = response_type(request_type(api, version))
    entity, outcome = None, "read"
    try:
        entity = decode_response(kind, frame, CORRELATION_ID)
    except FrameError:
        outcome = "FrameError"
    except UnknownBrokerCode:
        outcome = "UnknownBrokerCode"
    if api is ApiKey.FETCH:
        compare_fetch(frame, version, entity, outcome)
    return outcome


def compare_fetch(frame: bytes, version: int, entity: Any, outcome: str) -> None:
    """The walk over a Fetch response accepts and refuses what the schema does, and finds the same."""
    try:
        walked = walk_fetch_response(np.frombuffer(frame, np.uint8), version, CORRELATION_ID)
    except FrameError as error:
        # The schema has no rule against duplicates, and an unknown code is reported before text is looked at.
        excused = "comes twice" in str(error) or (outcome == "UnknownBrokerCode" and "codec" in str(error))
        if outcome != "FrameError" and not excused:
            raise Disagreement(f"walk_fetch_response refuses what the schema allows: {error}") from error
        return
    if outcome == "FrameError":
        raise Disagreement("walk_fetch_response accepts what the schema refuses")
    if entity is not None and summary_of_walk(frame, walked) != summary_of_entity(entity):
        raise Disagreement("walk_fetch_response reads other values than the schema")


def summary_of_walk(frame: bytes, walked: FetchedFrame) -> object:
    """Everything a walk found, with the records' bytes in place of their span."""

    def one(p: FetchedPartition) -> object:
        return (*p[:-2], frame[p.records_start : p.records_end])

    nodes = tuple((n.id, n.host, n.port, n.rack) for n in walked.endpoints)
    return (walked.throttle_ms, walked.error_code, walked.session_id, tuple(one(p) for p in walked.partitions), nodes)


def summary_of_entity(entity: Any) -> object:
    """The same from kio's FetchResponse."""
    partitions = tuple(_partition_summary(topic, p) for topic in entity.responses for p in topic.partitions)
    nodes = tuple((n.node_id, n.host, n.port, n.rack) for n in getattr(entity, "node_endpoints", ()))
    throttle = entity.throttle_time // timedelta(milliseconds=1)
    return (throttle, getattr(entity, "error_code", 0), getattr(entity, "session_id", 0), partitions, nodes)


def _partition_summary(topic: Any, p: Any) -> object:
    diverging, leader = getattr(p, "diverging_epoch", None), getattr(p, "current_leader", None)
    return (
        getattr(topic, "topic_id", None),
        getattr(topic, "topic", None),
        p.partition_index,
        p.error_code,
        p.high_watermark,
        p.last_stable_offset,
        getattr(p, "log_start_offset", -1),
        tuple((a.producer_id, a.first_offset) for a in p.aborted_transactions or ()),
        getattr(p, "preferred_read_replica", -1),
        (diverging.epoch, diverging.end_offset) if diverging is not None and diverging.epoch >= 0 else None,
        (leader.leader_id, leader.leader_epoch) if leader is not None and leader.leader_id >= 0 else None,
        p.records or b"",
    )


# --- the run ---------------------------------------------------------------------------------------------------------


def run(count: int, seed: int, first: int = 0) -> Counter[str]:
    """Read `count` mutated frames; how each ended. Half of them are Fetch responses."""
    kinds = response_kinds()
    fetches = [kind for kind in kinds if kind[0] is ApiKey.FETCH]
    _load_everything(kinds)
    outcomes: Counter[str] = Counter()
    _cap_memory()
    for number in range(first, first + count):
        random = Random(f"{seed}:{number}")  # noqa: S311
        api, version = random.choice(fetches if number % 2 else kinds)
        frame = mutate(frame_of(make_entity(response_type(request_type(api, version)), random)), random)
        faulthandler.dump_traceback_later(SECONDS_PER_FRAME, exit=True)
        try:
            outcomes[read_frame(api, version, frame)] += 1
        except BaseException:
            sys.stderr.write(f"frame {number} of seed {seed} ({api.name} v{version}): {frame.hex()}\n")
            raise
        finally:
            faulthandler.cancel_dump_traceback_later()
    return outcomes


def _load_everything(kinds: Sequence[tuple[ApiKey, int]]) -> None:
    """Schema modules and readers take memory of their own, which is not a frame's doing."""
    for api, version in kinds:
        kind = response_type(request_type(api, version))
        decode_response(kind, frame_of(make_entity(kind, Random(0))), CORRELATION_ID)  # noqa: S311


def _cap_memory() -> None:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the frames the arguments ask for and print one line."""
    parser = argparse.ArgumentParser(description="mutated response frames")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args(argv)
    faulthandler.enable()
    began = time.perf_counter()
    outcomes = run(options.count, options.seed, options.first)
    took = time.perf_counter() - began
    told = ", ".join(f"{name} {number}" for name, number in sorted(outcomes.items()))
    sys.stdout.write(f"frames: {options.count} of seed {options.seed} in {took:.1f} s: {told}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
