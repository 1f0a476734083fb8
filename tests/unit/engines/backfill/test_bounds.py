"""Where a backfill begins and ends."""

from __future__ import annotations

import pytest

from multilane.engines.backfill.bounds import bound_text, named_partitions, offset_ranges, parse_offsets
from multilane.errors import ConfigError, DataLoss


def test_offsets_of_partitions():
    assert parse_offsets(' {"1": 25, "0": 10}') == {0: 10, 1: 25}
    assert bound_text(parse_offsets('{"1": 25,"0":10}')) == '{"0": 10, "1": 25}'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "invalid JSON"),
        ("{}", "expected an offset for each partition"),
        ('{"a": 1}', "'a': 1 is not a partition"),
        ('{"-1": 1}', "'-1': 1 is not"),
        ('{"0": "10"}', "'0': '10' is not"),
        ('{"0": -1}', "'0': -1 is not"),
        ('{"0": true}', "'0': True is not"),
        ('{"0": 1.5}', "'0': 1.5 is not"),
        ('{"0": 9223372036854775808}', "is not a partition and an offset"),
    ],
)
def test_offsets_that_are_none(text, said):
    with pytest.raises(ValueError, match=said):
        parse_offsets(text)


def test_a_bound_has_one_text():
    assert bound_text("earliest") == "earliest"
    assert bound_text(1_700_000_000_000) == "2023-11-14T22:13:20.000+00:00"


def test_partitions_that_are_named():
    assert named_partitions("earliest", 1_000) is None
    assert named_partitions({2: 1}, "latest") == {2}
    assert named_partitions("earliest", {1: 5, 3: 5}) == {1, 3}
    with pytest.raises(ConfigError, match="1 is in one of them only"):
        named_partitions({0: 1, 1: 1}, {0: 5})


def test_stretches_are_what_was_asked_for():
    logs = {0: (5, 20), 1: (0, 0)}
    assert offset_ranges({0: 5, 1: 0}, {0: 20, 1: 0}, logs) == {0: (5, 20), 1: (0, 0)}
    assert offset_ranges({0: 7}, {0: 7}, logs) == {0: (7, 7)}


@pytest.mark.parametrize(
    ("start", "end", "error", "said"),
    [
        (9, 8, ConfigError, "--from 9 is after --to 8"),
        (4, 8, DataLoss, "now begins at 5, but --from is 4"),
        (6, 21, ConfigError, "now ends at 20, but --to is 21"),
    ],
)
def test_what_is_not_in_the_log(start, end, error, said):
    with pytest.raises(error, match=said):
        offset_ranges({3: start}, {3: end}, {3: (5, 20)})
