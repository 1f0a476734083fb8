"""A member finds its worker as if it were new."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

import pytest

import multilane
from multilane import App
from multilane.config.app import advising
from multilane.engines import worker_environment
from multilane.engines.continuous.worker import MemberTaskSpec, serve
from multilane.engines.worker_environment import in_worker_environment
from multilane.errors import ChannelLost, ConfigError

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
        with in_worker_environment(shop, number):
            seen.append(importlib.import_module("shop_at_home"))
            assert os.getcwd() == os.path.realpath(shop)
    assert [module.number for module in seen] == ["3", "4"]
    assert seen[0] is not seen[1]
    assert "shop_at_home" not in sys.modules
    assert "MULTILANE_MEMBER" not in os.environ
    assert before == (os.getcwd(), sys.path)


ADVISED = """
clusters: {main: {clientId: x, brokers: "localhost:9092"}}
consumers: {orders: {groupId: g, name: orders, cluster: main, error: orders-error}}
"""


def test_advice_is_given_by_the_driver_alone(shop, caplog, monkeypatch):
    monkeypatch.setattr(advising, "_silent", [])  # workers of other tests live as long as their process
    Path(shop, "multilane.yaml").write_text(ADVISED)
    with in_worker_environment(shop, 0):
        App("multilane.yaml")
    assert "no consumer reads orders-error" not in caplog.text
    App(Path(shop, "multilane.yaml"))
    assert "no consumer reads orders-error" in caplog.text


def test_libraries_of_an_environment_in_the_home_are_not_forgotten(shop, monkeypatch):
    """Objects of theirs outlive the life: a class whose module is gone can break a library."""
    site = Path(shop, ".venv", "lib", "python3", "site-packages")
    site.mkdir(parents=True)
    (site / "library_at_home.py").touch()
    monkeypatch.syspath_prepend(str(site))
    with in_worker_environment(shop, 0):
        library = importlib.import_module("library_at_home")
        importlib.import_module("shop_at_home")
    assert sys.modules.pop("library_at_home") is library
    assert "shop_at_home" not in sys.modules


def test_nor_is_a_python_in_the_home(shop, monkeypatch):
    prefix = Path(shop, "python")
    prefix.mkdir()
    (prefix / "of_python_itself.py").touch()
    monkeypatch.setattr(worker_environment, "_PYTHONS", (prefix,))
    monkeypatch.syspath_prepend(str(prefix))
    with in_worker_environment(shop, 0):
        ours = importlib.import_module("of_python_itself")
    assert sys.modules.pop("of_python_itself") is ours


def test_an_application_may_lie_among_libraries(tmp_path):
    place = tmp_path / "site-packages" / "shop"
    place.mkdir(parents=True)
    (place / "shop_among_libraries.py").touch()
    with in_worker_environment(str(place), 0):
        importlib.import_module("shop_among_libraries")
    assert "shop_among_libraries" not in sys.modules


def test_a_package_without_a_file_of_its_own_is_forgotten_with_its_modules(tmp_path, monkeypatch):
    monkeypatch.delenv("MULTILANE_MEMBER", raising=False)
    package = tmp_path / "namespace_at_home" / "deeper"
    package.mkdir(parents=True)
    (package / "orders.py").write_text(MODULE)
    seen = []
    for number in (3, 4):
        with in_worker_environment(str(tmp_path), number):
            importlib.import_module("namespace_at_home.deeper.orders")
            seen.append(sys.modules["namespace_at_home"].deeper.orders.number)
    assert seen == ["3", "4"]
    assert not [name for name in sys.modules if name.startswith("namespace_at_home")]


def test_multilane_itself_is_not_forgotten_in_a_checkout_of_it(monkeypatch):
    name = "multilane.sizing.history"
    monkeypatch.delitem(sys.modules, name, raising=False)
    with in_worker_environment(str(Path(multilane.__file__).parents[1]), 0):
        ours = importlib.import_module(name)
    assert sys.modules[name] is ours


def test_a_home_that_is_not_there_changes_nothing(tmp_path):
    before = (os.getcwd(), list(sys.path))
    with (
        pytest.raises(ConfigError, match=r"nowhere is not on .*multilane pack"),
        in_worker_environment(str(tmp_path / "nowhere"), 0),
    ):
        pass
    assert before == (os.getcwd(), sys.path)


def test_a_task_without_its_driver_fails():
    spec = MemberTaskSpec("f:g", "t", ".", "INFO", ("127.0.0.1", 1), token="t", number=0)
    with pytest.raises(ChannelLost, match="the driver does not answer"):
        list(serve(spec, iter([])))
