"""Every response and version: the walk accepts what kio writes, and both readers find what was written."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
from pathlib import Path
from random import Random
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from fuzz.frames_worker import (
    CORRELATION_ID,
    frame_of,
    make_entity,
    response_kinds,
    summary_of_entity,
    summary_of_walk,
)
from multilane.wire.fetch import walk_fetch_response
from multilane.wire.messages import ApiKey, decode_response, encode_request, request_type, response_type
from multilane.wire.versions import SPOKEN
from multilane.wire.walk import compile_schema, walk

KINDS = response_kinds()
NAMES = [f"{api.name}-{version}" for api, version in KINDS]
FEW = settings(max_examples=8, deadline=None)
every_kind = pytest.mark.parametrize(("api", "version"), KINDS, ids=NAMES)
randoms = st.integers(0, 2**32 - 1).map(Random)


@every_kind
@FEW
@given(random=randoms)
def test_every_response_is_read_as_it_was_written(api: ApiKey, version: int, random: Random) -> None:
    kind = response_type(request_type(api, version))
    entity = make_entity(kind, random)
    assert decode_response(kind, frame_of(entity), CORRELATION_ID) == entity


@every_kind
@FEW
@given(random=randoms, client_id=st.none() | st.text(max_size=20))
def test_every_request_frame_passes_the_walk(api: ApiKey, version: int, random: Random, client_id: str | None) -> None:
    kind = request_type(api, version)
    entity = make_entity(kind, random)
    frame = encode_request(entity, 5, client_id)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, size = entity_reader(kind.__header_schema__)(frame, 4)
    assert (header.request_api_key, header.request_api_version) == (api, version)
    assert (header.correlation_id, header.client_id) == (5, client_id)
    assert walk(compile_schema(kind.__header_schema__), frame[4 : 4 + size], 0).edits == []
    assert walk(compile_schema(kind), frame, 4 + size).edits == []
    assert entity_reader(kind)(frame, 4 + size) == (entity, len(frame) - 4 - size)


# --- a broker that is newer than the schemas -------------------------------------------------------------------------


def _newer(kind: type[Any], made: dict[type, type[Any]]) -> type[Any]:
    """The schema class with one more tagged field, in it and in every class below it."""
    if kind not in made:
        members: list[Any] = []
        for field in dataclasses.fields(kind):
            default = {} if field.default is dataclasses.MISSING else {"default": field.default}
            new = dataclasses.field(metadata=field.metadata, **default)
            members.append((field.name, _newer_type(field.type, made), new))
        members.append(("news", i32, dataclasses.field(metadata={"kafka_type": "int32", "tag": 300}, default=i32(0))))
        namespace = {name: getattr(kind, name) for name in ("__flexible__", "__header_schema__") if hasattr(kind, name)}
        made[kind] = dataclasses.make_dataclass(kind.__name__, members, kw_only=True, namespace=namespace)
    return made[kind]


def _newer_type(kind: Any, made: dict[type, type[Any]]) -> Any:
    if get_origin(kind) is UnionType:
        (arm,) = (arm for arm in get_args(kind) if arm is not NoneType)
        return _newer_type(arm, made) | None
    if get_origin(kind) is tuple:
        return tuple[_newer_type(get_args(kind)[0], made), ...]  # type: ignore[misc]
    return _newer(kind, made) if isinstance(kind, type) and dataclasses.is_dataclass(kind) else kind


def _with_news(value: Any, made: dict[type, type[Any]], random: Random) -> Any:
    if isinstance(value, tuple):
        return tuple(_with_news(element, made, random) for element in value)
    if not dataclasses.is_dataclass(value):
        return value
    members = {f.name: _with_news(getattr(value, f.name), made, random) for f in dataclasses.fields(value)}
    return made[type(value)](**members, news=random.choice((0, 1, 2**31 - 1)))


FLEXIBLE = [(api, version) for api, version in KINDS if response_type(request_type(api, version)).__flexible__]


@pytest.mark.parametrize(("api", "version"), FLEXIBLE, ids=[f"{api.name}-{version}" for api, version in FLEXIBLE])
@FEW
@given(random=randoms)
def test_tagged_fields_newer_than_the_schema_change_nothing(api: ApiKey, version: int, random: Random) -> None:
    kind = response_type(request_type(api, version))
    made: dict[type, type[Any]] = {}
    newer = _newer(kind, made)
    entity = make_entity(kind, random)
    if api is ApiKey.FETCH:
        entity = _without_duplicates(entity)
    out = io.BytesIO()
    entity_writer(kind.__header_schema__)(out, kind.__header_schema__(correlation_id=CORRELATION_ID))
    entity_writer(newer)(out, _with_news(entity, made, random))
    frame = out.getvalue()
    assert decode_response(kind, frame, CORRELATION_ID) == entity
    if api is ApiKey.FETCH:
        walked = walk_fetch_response(np.frombuffer(frame, np.uint8), version, CORRELATION_ID)
        assert summary_of_walk(frame, walked) == summary_of_entity(entity)


# --- Fetch -----------------------------------------------------------------------------------------------------------


def _without_duplicates(entity: Any) -> Any:
    """The response with its partitions numbered through, since no broker sends one twice."""
    topics, number = [], 0
    for topic in entity.responses:
        partitions = []
        for partition in topic.partitions:
            partitions.append(dataclasses.replace(partition, partition_index=number))
            number += 1
        topics.append(dataclasses.replace(topic, partitions=tuple(partitions)))
    return dataclasses.replace(entity, responses=tuple(topics))


@pytest.mark.parametrize("version", range(SPOKEN[ApiKey.FETCH][0], SPOKEN[ApiKey.FETCH][1] + 1))
@settings(max_examples=60, deadline=None)
@given(random=randoms)
def test_fetch_walk_finds_what_kio_reads(version: int, random: Random) -> None:
    kind = response_type(request_type(ApiKey.FETCH, version))
    entity = _without_duplicates(make_entity(kind, random))
    frame = frame_of(entity)
    walked = walk_fetch_response(np.frombuffer(frame, np.uint8), version, CORRELATION_ID)
    assert summary_of_walk(frame, walked) == summary_of_entity(entity)


# --- damage ----------------------------------------------------------------------------------------------------------


@pytest.mark.fuzz
@pytest.mark.parametrize("seed", [101, 102])
def test_mutated_frames_neither_crash_nor_hang_nor_grow(seed: int) -> None:
    worker = Path(__file__).parents[1] / "fuzz" / "frames_worker.py"
    ran = subprocess.run(
        [sys.executable, str(worker), "--count", "1500", "--seed", str(seed)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.startswith(f"frames: 1500 of seed {seed}")
    assert "FrameError" in ran.stdout
    assert "read" in ran.stdout
