"""What is refused before Spark hears of it, and how workers are told where the application is."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.util import module_from_spec
from types import SimpleNamespace

import pytest

from multilane import Record
from multilane.app.app import App
from multilane.app.targets import target_of
from multilane.errors import ConfigError, TargetNotFound
from unit.spark.test_topic_frames import app_of


async def index(record: Record) -> None:
    """Of this module."""


@pytest.fixture
def modules(monkeypatch):
    """Loads modules with such names in them, as an import does: they have a spec."""

    def load(**names):
        for module, (name, value) in names.items():
            made = module_from_spec(ModuleSpec(module, None))
            setattr(made, name, value)
            monkeypatch.setitem(sys.modules, module, made)

    return load


def listening(folder, **consumer: object) -> App:
    app = app_of(folder, **consumer)
    app.listener("orders")(index)
    return app


def test_an_application_is_found_in_a_module(tmp_path, modules):
    app = app_of(tmp_path)
    modules(shop_uses_it=("shop", app))
    assert target_of(app) == "shop_uses_it:shop"


def test_best_where_its_functions_are(tmp_path, modules):
    app = app_of(tmp_path)

    async def handle(record: Record) -> None: ...

    handle.__module__ = "shop_makes_it"
    app.listener("orders")(handle)
    modules(shop_uses_it=("app", app), shop_makes_it=("app", app), shop_too=("app", app))
    assert target_of(app) == "shop_makes_it:app"


def test_not_in_the_script_that_is_run(tmp_path, modules):
    app = app_of(tmp_path)
    modules(__main__=("app", app))
    with pytest.raises(TargetNotFound, match="a module of their own"):
        target_of(app)


def test_nor_by_another_name_of_that_script(tmp_path, modules, monkeypatch):
    """As multiprocessing gives it, or whoever imports the script."""
    app = app_of(tmp_path)
    modules(__main__=("app", app))
    for alias in ("__mp_main__", "script_of_this_test"):
        monkeypatch.setitem(sys.modules, alias, sys.modules["__main__"])
    with pytest.raises(TargetNotFound, match="a module of their own"):
        target_of(app)


def test_listeners_of_a_notebook_do_not_come_along(tmp_path, modules):
    app = app_of(tmp_path)

    async def handle(record: Record) -> None: ...

    handle.__module__ = "__main__"
    app.listener("orders")(handle)
    modules(shop_makes_it=("app", app))
    with pytest.raises(TargetNotFound, match=r"the listener .*handle is in the running script"):
        target_of(app)


SESSION = SimpleNamespace(conf={"spark.speculation": "false"})


@pytest.mark.parametrize(
    ("consumer", "name", "said"),
    [
        ({}, "nobody", "has no consumer 'nobody'"),
        (
            {"retry": "r", "retryCount": 1, "retryOrder": "key", "virtualPartitionCount": 2},
            "orders",
            "Set retryOrder: none",
        ),
        (
            {"retry": "r", "retryCount": 1, "uniqueListener": True, "batchSize": 5, "virtualPartitionCount": 2},
            "orders",
            r"by uniqueListener\)\..*Remove its retry topic",
        ),
    ],
)
def test_what_is_refused(tmp_path, modules, consumer, name, said):
    app = listening(tmp_path, **consumer)
    modules(shop_stage=("app", app))
    with pytest.raises(ConfigError, match=said):
        app.handle(SimpleNamespace(sparkSession=SESSION), name)


def test_a_consumer_without_a_listener(tmp_path, modules):
    app = app_of(tmp_path)
    modules(shop_stage=("app", app))
    with pytest.raises(ConfigError, match="has no listener"):
        app.handle(SimpleNamespace(sparkSession=SESSION), "orders")


def test_a_target_that_leads_nowhere(tmp_path):
    with pytest.raises(TargetNotFound, match="no module 'no_such_shop'"):
        listening(tmp_path).handle(SimpleNamespace(sparkSession=SESSION), "orders", target="no_such_shop:app")


def test_second_copies_of_tasks(tmp_path, modules):
    app = listening(tmp_path)
    modules(shop_stage=("app", app))
    session = SimpleNamespace(conf={"spark.speculation": "True"})  # Spark reads it as it reads true
    with pytest.raises(ConfigError, match=r"spark\.speculation is on"):
        app.handle(SimpleNamespace(sparkSession=session), "orders")
