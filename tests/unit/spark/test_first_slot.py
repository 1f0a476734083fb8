"""How long a cluster has to find room for us."""

from __future__ import annotations

import pytest

from multilane.errors import ConfigError
from multilane.spark.first_slot import START_SECONDS, no_slot, start_seconds

SETTING = "spark.multilane.startTimeout"


def test_two_minutes_unless_a_setting_says_otherwise():
    assert start_seconds({}) == START_SECONDS == 120.0
    assert start_seconds({SETTING: "1h30m"}) == 5_400.0


@pytest.mark.parametrize("text", ["600", "soon", "0s", "-1m"])
def test_what_is_no_time_is_refused_by_its_name(text):
    with pytest.raises(ConfigError, match=f"{SETTING}={text}: .*m"):
        start_seconds({SETTING: text})


def test_whoever_waited_in_vain_learns_how_to_wait_longer():
    assert no_slot(120.0).endswith(f"--conf {SETTING}=10m")
