"""The source of each value, and the schema for editors."""

from __future__ import annotations

import re

import pytest
import yaml

from multilane.config.app.explain import explain
from multilane.config.app.loading import MODELS
from multilane.config.app.schema import schema
from multilane.config.app.shape import key_of, keys_of
from unit.config.app import samples


def origins(found):
    return {setting.path: (setting.value, setting.shown, str(setting.origin)) for setting in explain(found)}


def test_every_value_has_an_origin(loaded, tmp_path):
    settings = origins(loaded(samples.WHOLE, profile="stage", env={"HOST": "h"}))
    file = f"{tmp_path}/one.yaml"
    consumer = 'consumers."orders.eu".'
    assert settings["clusters.main.clientId"] == ("shop", "shop", f"{file}:3:15")
    assert settings["clusters.main.brokers"] == (
        ["stage.example:9092"],
        "stage.example:9092",
        f"{file}:40:18, profile stage",
    )
    assert settings['clusters.main.properties."linger.ms"'] == ("20", "20", f"{file}:6:18")
    assert 'clusters.main.properties."client.rack"' not in settings
    assert settings[consumer + "virtualPartitionCount"] == (4, "4", f"{file}:44:32, profile stage")
    assert settings[consumer + "retryBackoff.delay"] == (0.5, "500ms", f"{file}:19:46")
    assert settings[consumer + "maxInFlightBytes"] == (64 << 20, "64mb", f"{file}:23:23")
    assert settings[consumer + "maxProcessingTime"] == (30.0, "30s", "default")
    assert settings[consumer + "virtualPartitionChanCount"] == (75, "75", "default")
    assert settings[consumer + "laneClasses"][1] == "slow: 5, Bulk: 2"
    assert settings["clusters.main.auth"] == (None, "-", "default")
    assert origins(loaded(samples.WHOLE, env={"HOST": "h"}))["clusters.main.brokers"] == (
        ["h:9092"], "h:9092", f"{file}:4:14, environment HOST",
    )  # fmt: skip


def test_secrets_are_masked(loaded):
    text = """
clusters:
  k:
    clientId: c
    brokers: b
    auth: {username: u, password: "${P}"}
    properties: {ssl.key.password: "${Q}", ssl.certificate.location: x}
"""
    found = loaded(text, env={"P": "geheim1", "Q": "geheim2"})
    settings = origins(found)
    assert settings["clusters.k.auth.password"][:2] == ("***", "***")
    assert "environment P" in settings["clusters.k.auth.password"][2]
    assert settings['clusters.k.properties."ssl.key.password"'][:2] == ("***", "***")
    assert "geheim" not in repr(explain(found))


def test_credentials_in_addresses_are_masked(loaded):
    text = """
clusters:
  k:
    clientId: c
    brokers: b
consumers:
  orders: {groupId: g, name: orders, cluster: k, audit: "s3://AKIA:${P}@bucket/audit?region=eu&session_token=${P}"}
"""
    found = loaded(text, env={"P": "geheim1"})
    masked = "s3://***@bucket/audit?region=eu&session_token=***"
    assert origins(found)["consumers.orders.audit"][:2] == (masked, masked)
    assert "geheim" not in repr(explain(found))


def resolve(whole, part):
    return whole["$defs"][part["$ref"].removeprefix("#/$defs/")] if "$ref" in part else part


def fits(whole, part, value):
    """The part of JSON Schema that ours uses."""
    part = resolve(whole, part)
    if "anyOf" in part:
        return any(fits(whole, option, value) for option in part["anyOf"])
    return value in part["enum"] if "enum" in part else fits_type(whole, part, value)


def fits_type(whole, part, value):
    kinds = part["type"] if isinstance(part["type"], list) else [part["type"]]
    python = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    if not any(
        isinstance(value, python[kind]) and (kind == "boolean" or not isinstance(value, bool)) for kind in kinds
    ):
        return False
    if isinstance(value, str) and "pattern" in part and not re.search(part["pattern"], value):
        return False
    if isinstance(value, int | float) and not part.get("minimum", value) <= value <= part.get("maximum", value):
        return False
    if isinstance(value, list):
        return all(fits(whole, part.get("items", {"type": "string"}), item) for item in value)
    return fits_object(whole, part, value) if isinstance(value, dict) else True


def fits_object(whole, part, value):
    known, others = part.get("properties", {}), part.get("additionalProperties", True)
    if any(key not in value for key in part.get("required", ())):
        return False
    for key, held in value.items():
        if key in known:
            if not fits(whole, known[key], held):
                return False
        elif others is False or (isinstance(others, dict) and not fits(whole, others, held)):
            return False
    return True


@pytest.fixture(scope="module")
def made():
    return schema()


def test_samples_fit_the_schema(made):
    assert fits(made, made, yaml.safe_load(samples.WHOLE))
    stage = yaml.safe_load(samples.CLUSTERS)["stage"]
    whole = {
        "clusters": stage,
        "consumers": yaml.safe_load(samples.CONSUMERS),
        "producers": yaml.safe_load(samples.PRODUCERS),
        "shovels": yaml.safe_load(samples.SHOVELS),
    }
    assert fits(made, made, whole)


@pytest.mark.parametrize(
    "text",
    [
        "nonsense: {}",
        "consumers: {c: {groupId: g, name: t}}",
        "consumers: {c: {groupId: g, name: t, cluster: k, typo: 1}}",
        "consumers: {c: {groupId: g, name: t, cluster: k, sessionTimeout: 30}}",
        "consumers: {c: {groupId: g, name: t, cluster: k, virtualPartitionCount: -1}}",
        "consumers: {c: {groupId: g, name: t, cluster: k, ack: maybe}}",
        "consumers: {c: {groupId: g, name: t, cluster: k, retryBackoff: {dely: 1s}}}",
        "clusters: {c: {clientId: c, brokers: b, auth: {username: u}}}",
        "profiles: {p: {consumers: {c: {typo: 1}}}}",
    ],
)
def test_mistakes_do_not_fit_the_schema(text, made):
    assert not fits(made, made, yaml.safe_load(text))


def test_the_schema_has_every_key_with_its_sentence(made):
    assert made["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    for section, model in MODELS.items():
        entry = resolve(made, made["properties"][section]["additionalProperties"])
        assert entry["additionalProperties"] is False
        assert entry["properties"].keys() - {"group.protocol"} == keys_of(model).keys()
        assert all(
            resolve(made, held).get("description") or held.get("description") for held in entry["properties"].values()
        )
    consumer = made["$defs"]["ConsumerGroupConfig"]["properties"]
    assert consumer["maxProcessingTime"]["default"] == "30s"
    assert consumer["fetchMaxBytes"]["default"] == "1mb"
    assert "75 times batchSize" in consumer["virtualPartitionChanCount"]["description"]
    assert made["$defs"]["ConsumerGroupConfig"]["required"] == ["groupId", "name", "cluster"]
    assert "required" not in made["$defs"]["ConsumerGroupConfigPart"]


def test_keys_are_camel_case():
    for model in MODELS.values():
        for name, info in model.model_fields.items():
            assert re.fullmatch(r"([a-z][A-Za-z]*)?", key_of(name, info))
