"""Which records must keep their order, and the hashes that bind keys to lanes."""

from __future__ import annotations

from collections import Counter

import pytest
from aiokafka.partitioner import murmur2 as of_aiokafka

from lane_world import record_of
from multilane.lanes.ordering import bytesum_lane, murmur2, murmur2_lane, order_of


@pytest.mark.parametrize("key", [b"", b"a", b"ab", b"abc", b"abcd", b"abcde", b"21", b"foobar", bytes(range(256))])
def test_murmur2_is_kafkas(key):
    assert murmur2(key) == of_aiokafka(key) & 0xFFFFFFFF


def test_each_key_is_a_chain_of_its_own_by_default():
    order = order_of("key", "key", 20)
    assert order(record_of("a", 0)) == b"a"
    assert order(record_of(None, 0)) is None


def test_without_lanes_a_partition_is_one_chain():
    order = order_of("key", "key", 0)
    assert order(record_of("a", 0)) == order(record_of(None, 1)) is not None


def test_orders_by_partition_and_none():
    assert order_of("partition", "key", 20)(record_of("a", 0)) == order_of("partition", "key", 20)(record_of("b", 0))
    assert order_of("none", "key", 20)(record_of("a", 0)) is None


def test_bytesum_is_the_sum_of_the_bytes():
    assert order_of("key", "bytesum", 10)(record_of("ab", 0)) == (97 + 98) % 10
    assert order_of("key", "bytesum", 10)(record_of("", 0)) is None
    assert bytesum_lane(b"ba", 10) == bytesum_lane(b"ab", 10)


def test_murmur2_spreads_what_bytesum_does_not():
    """Also within one Kafka partition, where the low bits of the hash are all alike."""
    keys = [b"%08d" % i for i in range(200_000, 220_000) if (murmur2(b"%08d" % i) & 0x7FFFFFFF) % 16 == 3]
    busiest = {
        name: max(Counter(lane(key, 200) for key in keys).values()) / (len(keys) / 200)
        for name, lane in (("murmur2", murmur2_lane), ("bytesum", bytesum_lane))
    }
    assert busiest["murmur2"] < 4 < busiest["bytesum"]
