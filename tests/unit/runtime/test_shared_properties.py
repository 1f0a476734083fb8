"""Where triggers disagree, the safer value is used, and the disagreement is said."""

from __future__ import annotations

import pytest

from multilane.runtime.shared_properties import merged


@pytest.mark.parametrize(
    ("name", "values", "chosen"),
    [
        ("auto.offset.reset", ["latest", "earliest"], "earliest"),
        ("heartbeat.interval.ms", [3000, 1000], 1000),
        ("session.timeout.ms", [10_000, 45_000], 45_000),
        ("max.poll.interval.ms", [1, 2], 2),
        ("max.partition.fetch.bytes", [5, 1], 5),
        ("group.protocol", ["auto", "classic"], "classic"),
        ("group.protocol", ["consumer", "classic"], "classic"),
        ("group.protocol", ["auto", "consumer"], "consumer"),
        ("client.rack", ["b", "a"], "b"),
    ],
)
def test_the_safer_value_is_used_and_the_difference_said(name, values, chosen):
    properties, differences = merged({"one": {name: values[0]}, "two": {name: values[1]}})
    assert properties == {name: chosen}
    [difference] = differences
    for part in (name, "one", "two", str(chosen)):
        assert part in difference


def test_what_agrees_is_not_spoken_of():
    assert merged({"one": {"a": 1}, "two": {"a": 1}}) == ({"a": 1}, [])


def test_a_value_that_only_one_has_is_said():
    properties, [difference] = merged({"one": {"fetch.min.bytes": 7}, "two": {}})
    assert properties == {"fetch.min.bytes": 7}
    assert "two: not set" in difference


def test_order_across_a_retry_decides_on_the_assignor_without_a_word():
    given = {"one": {"group.remote.assignor": "uniform"}, "two": {"group.remote.assignor": "range"}, "three": {}}
    assert merged(given) == ({"group.remote.assignor": "range"}, [])
