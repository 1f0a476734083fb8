"""Subscriptions and assignments of classic members: our bytes are Kafka's, and hostile ones are refused."""

from __future__ import annotations

import sys
from contextlib import suppress
from importlib import import_module
from io import BytesIO

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer
from kio.static.primitive import i32

from multilane.errors import FrameError
from multilane.types import TopicPartition
from multilane.wire.compose_groups import read_assignment
from multilane.wire.subscription import (
    MemberSubscription,
    read_subscription,
    write_assignment,
    write_subscription,
)

FULL = MemberSubscription(
    topics=("a", "b"),
    user_data=b"xyz",
    owned=(TopicPartition("a", 0), TopicPartition("a", 2), TopicPartition("b", 1)),
    generation=7,
    rack="r1",
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PARTITIONS = st.lists(st.builds(TopicPartition, TEXT, st.integers(0, 2**31 - 1)), max_size=6, unique=True)
SUBSCRIPTIONS = st.builds(
    MemberSubscription,
    topics=st.lists(TEXT, max_size=4).map(tuple),
    user_data=st.none() | st.binary(max_size=10),
    owned=PARTITIONS.map(lambda found: tuple(sorted(found))),
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | TEXT,
)


def kafkas(kind: str, version: int):
    return getattr(import_module(f"kio.schema.{kind}.v{version}.data"), "".join(map(str.capitalize, kind.split("_"))))


@pytest.mark.parametrize("version", range(4))
def test_our_subscription_is_what_kafka_reads(version):
    data = write_subscription(FULL, version)
    kind = kafkas("consumer_protocol_subscription", version)
    read, size = entity_reader(kind)(data, 2)
    assert (int.from_bytes(data[:2], "big"), size + 2) == (version, len(data))
    assert (read.topics, read.user_data) == (("a", "b"), b"xyz")
    if version >= 1:
        assert {t.topic: t.partitions for t in read.owned_partitions} == {"a": (0, 2), "b": (1,)}
    if version >= 2:
        assert read.generation_id == 7
    if version >= 3:
        assert read.rack_id == "r1"


@pytest.mark.parametrize("version", range(4))
def test_kafkas_subscription_is_what_we_read(version):
    kind = kafkas("consumer_protocol_subscription", version)
    fields = {"topics": ("a",), "user_data": None}
    if version >= 1:
        owned = sys.modules[kind.__module__].TopicPartition
        fields["owned_partitions"] = (owned(topic="a", partitions=(i32(3),)),)
    if version >= 2:
        fields["generation_id"] = i32(5)
    if version >= 3:
        fields["rack_id"] = None
    out = BytesIO()
    entity_writer(kind)(out, kind(**fields))
    read = read_subscription(version.to_bytes(2, "big") + out.getvalue())
    assert (read.topics, read.user_data, read.rack) == (("a",), None, None)
    assert read.owned == ((TopicPartition("a", 3),) if version >= 1 else ())
    assert read.generation == (5 if version >= 2 else -1)


@given(SUBSCRIPTIONS)
def test_what_is_written_is_read(subscription):
    assert read_subscription(write_subscription(subscription)) == subscription


def test_a_newer_version_is_read_by_what_we_know():
    data = bytearray(write_subscription(FULL) + b"something new")
    data[:2] = (9).to_bytes(2, "big")
    assert read_subscription(bytes(data)) == FULL


@given(PARTITIONS)
def test_an_assignment_is_read_as_it_was_written(partitions):
    data = write_assignment(partitions)
    assert read_assignment(data) == tuple(sorted(partitions))
    _, size = entity_reader(kafkas("consumer_protocol_assignment", 0))(data, 2)
    assert size + 2 == len(data)


@pytest.mark.parametrize("cut", range(len(write_subscription(FULL))))
def test_cut_bytes_are_refused(cut):
    with pytest.raises(FrameError):
        read_subscription(write_subscription(FULL)[:cut])


@pytest.mark.parametrize(
    "data",
    [
        b"\xff\xff\0\0\0\0\xff\xff\xff\xff",  # version -1
        b"\0\0\x7f\xff\xff\xff\xff\xff\xff\xff",  # two thousand million topics
        b"\0\0\xff\xff\xff\xff\xff\xff\xff\xff",  # -1 topics
        b"\0\0\0\0\0\1\xff\xfe\0\0\0\0",  # a name of -2 bytes
        b"\0\0\0\0\0\1\0\1\xc3\xff\xff\xff\xff",  # no UTF-8
        b"\0\0\0\0\0\0\x80\0\0\0",  # user data of less than no bytes
        b"\0\1\0\0\0\0\xff\xff\xff\xff\0\0\0\1\0\1t\x40\0\0\0",  # a thousand million partitions
    ],
)
def test_lengths_that_lie_are_refused(data):
    with pytest.raises(FrameError):
        read_subscription(data)


@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(data):
    with suppress(FrameError):
        read_subscription(data)
