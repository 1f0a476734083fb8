"""How an app is found, and what is said when it is not."""

from __future__ import annotations

import importlib
import sys
from functools import partial
from types import ModuleType

import pytest

from multilane.app.app import App
from multilane.app.targets import find_app, target_of
from multilane.errors import TargetNotFound
from multilane.wire.records.record import Record

MODULE = """
from multilane import App
app = App("multilane.yaml")
class holder:
    inner = app
number = 3
def made():
    return app
"""
CONFIG = """
clusters: {main: {clientId: x, brokers: "localhost:9092"}}
consumers: {orders: {groupId: g, name: orders, cluster: main}}
"""


@pytest.fixture
def shop(tmp_path, monkeypatch):
    (tmp_path / "shop_of_this_test.py").write_text(MODULE)
    (tmp_path / "broken_shop.py").write_text("import no_such_thing_at_all")
    (tmp_path / "multilane.yaml").write_text(CONFIG)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield "shop_of_this_test"
    for name in ("shop_of_this_test", "broken_shop"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("path", ["app", "holder.inner", "made"])
def test_an_app_is_found(shop, path):
    assert isinstance(find_app(f"{shop}:{path}"), App)


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("shop_of_this_test", "is not MODULE:APP"),
        (":app", "is not MODULE:APP"),
        ("__main__:app", "a module of their own"),
        ("__mp_main__:app", "a module of their own"),
        ("no_such_shop:app", "there is no module 'no_such_shop'"),
        ("shop_of_this_test:missing", "does not exist: it must be a multilane.App"),
        ("shop_of_this_test:number", "is of type int: it must be a multilane.App"),
    ],
)
def test_what_is_no_app_is_said_clearly(shop, target, said):
    with pytest.raises(TargetNotFound, match=said):
        find_app(target)


def test_what_the_module_itself_cannot_import_is_not_hidden(shop):
    with pytest.raises(ModuleNotFoundError, match="no_such_thing_at_all"):
        find_app("broken_shop:app")


def handle(times: int, record: Record) -> None: ...


def test_a_partial_is_at_home_where_its_function_is(shop, monkeypatch):
    """Workers that import the application's module would not have the listener."""
    app = importlib.import_module(shop).app
    monkeypatch.setattr(handle, "__module__", "__main__")
    app.listener("orders")(partial(partial(handle), 3))
    with pytest.raises(TargetNotFound, match="the listener handle is in the running script"):
        target_of(app)
    with pytest.raises(TargetNotFound, match="the listener handle is in the running script"):
        find_app(f"{shop}:app")


def test_a_module_that_nobody_imported_is_no_home(shop, monkeypatch):
    """As `runpy.run_path` makes one, or a notebook for its cells: no worker could import it."""
    app = App("multilane.yaml")
    cells = ModuleType("<run_path>")
    cells.app = app
    monkeypatch.setitem(sys.modules, cells.__name__, cells)
    with pytest.raises(TargetNotFound, match="no loaded module has the application"):
        target_of(app)
