"""Several processes of an app: what is refused before any of them begins."""

from __future__ import annotations

import json

import pytest

from multilane.errors import ConfigError, TargetNotFound
from multilane.runtime.siblings import run_siblings


@pytest.fixture
def static_app(tmp_path, monkeypatch):
    group = {"cluster": "main", "groupId": "g", "name": "orders", "properties": {"group.instance.id": "shop-1"}}
    settings = {"clusters": {"main": {"clientId": "c", "brokers": "127.0.0.1:1"}}, "consumers": {"orders": group}}
    path = tmp_path / "multilane.yaml"
    path.write_text(json.dumps(settings))
    (tmp_path / "static_shop.py").write_text(f"import multilane\napp = multilane.App({str(path)!r})\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "static_shop:app"


def test_members_that_would_be_one_and_the_same_are_refused(static_app):
    with pytest.raises(ConfigError, match=r"consumers.orders has a group.instance.id.*leave it out, or run one member"):
        run_siblings(static_app, 2, "INFO")


def test_an_app_that_is_not_there_is_told_once():
    with pytest.raises(TargetNotFound):
        run_siblings("no_such_shop:app", 2, "INFO")
