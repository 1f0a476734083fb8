"""Where reading begins and ends, as options and checkpoints say it."""

from __future__ import annotations

import pytest

from multilane.errors import ConfigError
from multilane.spark.offset_spec import (
    EARLIEST,
    GROUP,
    LATEST,
    AtTime,
    Exact,
    Named,
    epochs_in,
    from_json,
    ids_in,
    parse_offsets,
    parse_time,
    parse_times,
    to_json,
)
from multilane.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
BOTH = (EARLIEST, LATEST, GROUP)


@pytest.mark.parametrize(
    ("text", "spec"),
    [
        ("earliest", Named(EARLIEST)),
        (" Latest ", Named(LATEST)),
        ("GROUP", Named(GROUP)),
        ('{"a": {"0": 23, "1": -2}, "b": {"0": -1}}', Exact({A0: 23, A1: EARLIEST, B0: LATEST})),
        ("{}", Exact({})),
    ],
)
def test_specs(text, spec):
    assert parse_offsets("startingOffsets", text, BOTH) == spec


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("newest", "startingOffsets='newest': give earliest, latest, group, or JSON"),
        ('{"a": 5}', "a whole number for each partition"),
        ('{"a": {"x": 5}}', "a whole number for each partition"),
        ('{"a": {"0": 5.5}}', "a whole number for each partition"),
        ('{"a": {"0": true}}', "a whole number for each partition"),
        ('{"a": {"0": "5"}}', "a whole number for each partition"),
        ('{"a": ', "a whole number for each partition"),
        ('{"a": {"0": -3}}', "-3 is not an offset of a-0; -2 is earliest, -1 latest"),
    ],
)
def test_what_is_no_place(text, said):
    with pytest.raises(ConfigError, match=said):
        parse_offsets("startingOffsets", text, BOTH)


def test_an_end_is_not_at_the_beginning():
    with pytest.raises(ConfigError, match="a-0 cannot be earliest"):
        parse_offsets("endingOffsets", '{"a": {"0": -2}}', (LATEST,))


def test_times():
    assert parse_time("startingTimestamp", "1700000000000", is_strict=True) == AtTime(1_700_000_000_000)
    assert parse_times("x", '{"a": {"0": 5}}', is_strict=False) == AtTime({A0: 5}, is_strict=False)
    for text in ("yesterday", "-1", "1.5"):
        with pytest.raises(ConfigError, match="milliseconds since 1970"):
            parse_time("startingTimestamp", text, is_strict=True)
    with pytest.raises(ConfigError, match="milliseconds since 1970"):
        parse_times("x", '{"a": {"0": -5}}', is_strict=True)


def test_offsets_look_as_those_of_sparks_own_source():
    tree = {"a": {"0": 5, "1": 7}, "b": {"0": 0}}
    assert to_json({A1: 7, B0: 0, A0: 5}) == tree
    assert from_json(tree) == {A0: 5, A1: 7, B0: 0}


def test_topics_have_their_ids_beside_their_partitions():
    tree = to_json({A0: 5, B0: 0}, {"a": "one", "c": "another"})
    assert tree == {"a": {"0": 5, "id": "one"}, "b": {"0": 0}}
    assert from_json(tree) == {A0: 5, B0: 0}
    assert ids_in(tree) == {"a": "one"}


@pytest.mark.parametrize("tree", [{"a": 5}, {"a": {"0": "5"}}, {"logOffset": {"x": 1}}, [1]])
def test_a_checkpoint_of_something_else_is_reported(tree):
    with pytest.raises(ConfigError, match="not one of this source"):
        from_json(tree)


def test_checkpoints_keep_the_leader_epochs_of_places():
    tree = to_json({A0: 5, A1: 7, B0: 0}, {"a": "one"}, {A0: 3, B0: 0})
    assert tree == {"a": {"0": 5, "1": 7, "id": "one", "epochs": {"0": 3}}, "b": {"0": 0, "epochs": {"0": 0}}}
    assert epochs_in(tree) == {A0: 3, B0: 0}
    assert from_json(tree) == {A0: 5, A1: 7, B0: 0}
    assert epochs_in(to_json({A0: 5}, {"a": "one"})) == {}, "of a version that did not write them"
