"""A member finds its worker as if it were new."""

from __future__ import annotations

import importlib
import os
import sys

import pytest

from multilane.errors import ConfigError, LineLost
from multilane.spark.continuous.task import TaskPlan, serve
from multilane.spark.home import at_home

MODULE = """
import os
number = os.environ["MULTILANE_MEMBER"]
"""


@pytest.fixture
def shop(tmp_path):
    (tmp_path / "shop_at_home.py").write_text(MODULE)
    return str(tmp_path)


def test_each_life_has_modules_of_its_own_and_leaves_nothing(shop, monkeypatch):
    monkeypatch.delenv("MULTILANE_MEMBER", raising=False)
    before = (os.getcwd(), list(sys.path))
    seen = []
    for number in (3, 4):
        with at_home(shop, number):
            seen.append(importlib.import_module("shop_at_home"))
            assert os.getcwd() == os.path.realpath(shop)
    assert [module.number for module in seen] == ["3", "4"]
    assert seen[0] is not seen[1]
    assert "shop_at_home" not in sys.modules
    assert "MULTILANE_MEMBER" not in os.environ
    assert before == (os.getcwd(), sys.path)


def test_a_home_that_is_not_there_changes_nothing(tmp_path):
    before = (os.getcwd(), list(sys.path))
    with pytest.raises(ConfigError, match=r"nowhere is not on .*multilane pack"), at_home(str(tmp_path / "nowhere"), 0):
        pass
    assert before == (os.getcwd(), sys.path)


def test_a_task_without_its_driver_fails():
    plan = TaskPlan(0, "f:g", "t", ".", "INFO", ("127.0.0.1", 1), token="t")
    with pytest.raises(LineLost, match="the driver does not answer"):
        list(serve(plan, iter([])))
