"""A schema registry in a plan: without its secrets, which each worker fills in."""

from __future__ import annotations

import json
import pickle

import pytest

from multilane import Avro
from multilane.app.app import App
from multilane.config.app.cluster import ClusterConfig
from multilane.errors import ConfigError
from multilane.spark.registry_plan import filled, registry_plan

SECRET = "open sesame"


def cluster_of(folder, monkeypatch, **registry: str) -> ClusterConfig:
    monkeypatch.setenv("REGISTRY_PASSWORD", SECRET)
    registry = {"url": "http://localhost:8081", "username": "u", "password": "${REGISTRY_PASSWORD}", **registry}
    settings = {"clusters": {"main": {"clientId": "x", "brokers": "a:1", "schemaRegistry": registry}}}
    path = folder / "multilane.yaml"
    path.write_text(json.dumps(settings))
    return App(path).config.cluster("main")


def test_secrets_travel_by_name(tmp_path, monkeypatch):
    cluster = cluster_of(tmp_path, monkeypatch, timeout="2s")
    plan = registry_plan(Avro(), cluster)
    assert plan is not None
    assert SECRET not in repr(plan)
    assert SECRET.encode() not in pickle.dumps(plan)
    assert SECRET not in repr(cluster)
    assert filled(plan, {"REGISTRY_PASSWORD": SECRET}) == cluster.schema_registry
    with pytest.raises(ConfigError, match=r"password is \$\{REGISTRY_PASSWORD\}, and the environment of this Spark"):
        filled(plan, {})


@pytest.mark.parametrize("password", [SECRET, "${REGISTRY_PASSWORD:-open sesame}", "open ${REGISTRY_PASSWORD}"])
def test_secrets_that_a_plan_would_show(tmp_path, monkeypatch, password):
    with pytest.raises(ConfigError, match=r"schemaRegistry\.password would be shown in Spark's plans") as caught:
        registry_plan(Avro(), cluster_of(tmp_path, monkeypatch, password=password))
    assert SECRET not in str(caught.value)


def test_formats_that_need_none(tmp_path, monkeypatch):
    assert registry_plan(Avro({"type": "string"}), None) is None
    with pytest.raises(ConfigError, match="Avro needs a schema registry"):
        registry_plan(Avro(), None)
