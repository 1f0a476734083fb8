"""Valid arguments of public calls, and the error messages of invalid ones."""

from __future__ import annotations

import re

import pytest

from multilane.client.arguments import checked_commit, checked_partitions
from multilane.client.group.wanted_topics import ClientPattern, ServerPattern, TopicNames, wanted_from
from multilane.types import OffsetAndMetadata, TopicPartition

T0 = TopicPartition("t", 0)


def wish(wanted):
    return wanted_from(wanted, without_internal=True)


def test_names():
    assert wish(["a", "b", "a"]) == TopicNames(frozenset({"a", "b"}))
    assert wish(()) == TopicNames(frozenset())


def test_a_pattern_fits_whole_names():
    pattern = wish(re.compile("orders|__.*"))
    assert pattern == ClientPattern(re.compile("orders|__.*"), without_internal=True)
    assert pattern.fitting(["orders", "orders-2", "__mine"]) == {"orders", "__mine"}


def test_a_pattern_of_the_brokers():
    assert wish(ServerPattern("a.*")) == ServerPattern("a.*")
    with pytest.raises(ValueError, match="RE2J"):
        ServerPattern("")


@pytest.mark.parametrize(
    ("wanted", "error", "words"),
    [
        ("orders", TypeError, r"a list of topics: \['orders'\]"),
        (re.compile(b"x"), TypeError, "from a str"),
        (7, TypeError, "a list of topics, a compiled pattern or a ServerPattern"),
        (["a b"], ValueError, "'a b' is not a topic name"),
        ([""], ValueError, "is not a topic name"),
        ([None], ValueError, "None is not a topic name"),
    ],
)
def test_what_cannot_be_subscribed_to(wanted, error, words):
    with pytest.raises(error, match=words):
        wish(wanted)


def test_offsets_to_commit():
    given = {("t", 0): 5, TopicPartition("t", 1): OffsetAndMetadata(7, 3, "mine")}
    assert checked_commit(given) == {
        T0: OffsetAndMetadata(5),
        TopicPartition("t", 1): OffsetAndMetadata(7, 3, "mine"),
    }


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ({T0: -1}, "offset -1 is out of range"),
        ({T0: "5"}, "'5' is not a whole number"),
        ({T0: True}, "offset True is not a whole number"),
        ({T0: OffsetAndMetadata(5, True)}, "leader epoch True is not a whole number"),
        ({("t", False): 5}, "partition of t False is not a whole number"),
        ({T0: OffsetAndMetadata(5, -7)}, "leader epoch -7 is out of range"),
        ({"t-0": 5}, "is not a partition"),
        ({("t", -1): 5}, "partition of t -1 is out of range"),
    ],
)
def test_offsets_that_no_group_can_keep(offsets, words):
    with pytest.raises(ValueError, match=words):
        checked_commit(offsets)


def test_metadata_is_a_text():
    with pytest.raises(TypeError, match="not a string"):
        checked_commit({T0: OffsetAndMetadata(5, 0, b"x")})


@pytest.mark.parametrize("text", ["x" * 40_000, "\ud800"])
def test_and_one_that_can_be_sent(text):
    with pytest.raises(ValueError, match="metadata of t-0 must be UTF-8 of at most 32767 bytes"):
        checked_commit({T0: OffsetAndMetadata(5, 0, text)})


def test_partitions():
    assert checked_partitions([("t", 0), T0]) == {T0}
