"""Schemas from a real registry, by both of its APIs, and what a registry that fails is taken for."""

from __future__ import annotations

import json
import ssl

import pytest

import apicurio
import schema_samples as samples
from certificates import Authority
from multilane.config.app.registry import SchemaRegistryConfig
from multilane.errors import ConfigError, RegistryUnavailable, UnknownSchema
from multilane.registry.answers import AVRO, JSON, PROTOBUF
from multilane.registry.framing import SchemaId
from multilane.registry.schema_registry import SchemaRegistry
from multilane.secret import Secret
from registry_server import RegistryServer

pytestmark = [pytest.mark.broker]

PASSWORD = "open sesame"


def asked(url: str, **settings: object) -> SchemaRegistry:
    return SchemaRegistry(SchemaRegistryConfig(url=url, **settings))


def schema_id(number: int, kind: str = "id") -> SchemaId:
    return SchemaId(kind, number)


def test_a_real_registry_by_confluents_api(registry):
    found = asked(f"{registry}/apis/ccompat/v7/")
    item = apicurio.register(registry, "api.item", samples.ITEM)
    outer = samples.OLD | {"fields": [{"name": "item", "type": "shop.Item"}]}
    reference = {"name": "shop.Item", "subject": "api.item", "version": 1}
    whole = apicurio.register(registry, "api.orders-value", outer, references=(reference,))
    proto = apicurio.register(registry, "api.proto-value", samples.PROTO, PROTOBUF)
    checked = apicurio.register(registry, "api.json-value", samples.JSON_SCHEMA, JSON)
    schemas = [found.schema(schema_id(number)) for number in (item, whole, proto, checked)]
    assert [schema.kind for schema in schemas] == [AVRO, AVRO, PROTOBUF, JSON]
    assert [(name, json.loads(text)) for name, text in schemas[1].references] == [("shop.Item", samples.ITEM)]
    newest = found.latest("api.orders-value")
    assert (newest.text, newest.references) == (schemas[1].text, schemas[1].references)
    with pytest.raises(UnknownSchema, match=rf"at {registry}/apis/ccompat/v7 has no id 9999: check"):
        found.schema(schema_id(9999))
    with pytest.raises(UnknownSchema, match="has no subject nobody-value"):
        found.latest("nobody-value")


@pytest.mark.parametrize("version", ["v2", "v3"])
def test_a_real_registry_by_apicurios_api(registry, version):
    found = asked(f"{registry}/apis/registry/{version}", wire_format="apicurio")
    apicurio.register(registry, f"own.{version}.item", samples.ITEM)
    outer = samples.OLD | {"fields": [{"name": "item", "type": "shop.Item"}], "doc": version}
    reference = {"name": "shop.Item", "subject": f"own.{version}.item", "version": 1}
    content = apicurio.register(registry, f"own.{version}-value", outer, references=(reference,))
    number = apicurio.global_id(registry, f"own.{version}-value")
    for wanted in (schema_id(number, "global id"), schema_id(content, "content id")):
        schema = found.schema(wanted)
        assert (schema.kind, json.loads(schema.text)) == (AVRO, outer)
        assert [(name, json.loads(text)) for name, text in schema.references] == [("shop.Item", samples.ITEM)]
    assert json.loads(found.latest(f"own.{version}-value").text) == outer
    proto = apicurio.register(registry, f"own.{version}.proto", samples.PROTO, PROTOBUF)
    assert found.schema(schema_id(proto, "content id")).kind == PROTOBUF
    checked = apicurio.register(registry, f"own.{version}.json", samples.JSON_SCHEMA, JSON)
    assert found.schema(schema_id(checked, "content id")).kind == JSON
    with pytest.raises(UnknownSchema, match="has no global id 9999"):
        found.schema(schema_id(9999, "global id"))


@pytest.mark.parametrize("wire_format", ["confluent", "apicurio"])
@pytest.mark.parametrize(
    ("failure", "said"),
    [
        (500, r"answered HTTP 500 to id 1 \(no\): check its health"),
        (429, "answered HTTP 429"),
        (401, "check the login"),
        (403, "check the login"),
        (404, r"check the path of schemaRegistry\.url"),
        ("drop", "did not answer for id 1"),
        ("hang", "did not answer for id 1"),
        ("garbage", "with something else than a schema"),
    ],
)
def test_a_registry_that_fails_says_nothing_about_a_schema(scripted, failure, said, wire_format):
    number = scripted.register("orders-value", samples.OLD)
    found = asked(scripted.url, timeout=0.5, wire_format=wire_format)
    scripted.failure = failure
    kind = "id" if wire_format == "confluent" else "global id"
    with pytest.raises(RegistryUnavailable, match=said.replace("id 1", f"{kind} 1").replace(r" \(no\)", r"( \(no\))?")):
        found.schema(schema_id(number, kind))


def test_a_registry_that_is_not_there():
    for wire_format, kind in (("confluent", "id"), ("apicurio", "global id")):
        with pytest.raises(
            RegistryUnavailable, match=rf"at http://127\.0\.0\.1:9 did not answer for {kind} 1: Conn|URL"
        ):
            asked("http://127.0.0.1:9", wire_format=wire_format).schema(schema_id(1, kind))


@pytest.mark.parametrize(
    ("told", "settings"),
    [
        ({"login": ("alice", PASSWORD)}, {"username": "alice", "password": Secret(PASSWORD)}),
        ({"token": PASSWORD}, {"token": Secret(PASSWORD)}),
    ],
)
def test_logins(told, settings):
    with RegistryServer(**told) as server:
        number = server.register("orders-value", samples.OLD)
        assert asked(server.url, **settings).schema(schema_id(number)).kind == AVRO
        for wire_format, kind in (("confluent", "id"), ("apicurio", "global id")):
            wrong = settings | {"wire_format": wire_format} | {"token" if "token" in told else "password": Secret("no")}
            with pytest.raises(RegistryUnavailable, match="HTTP 401") as caught:
                asked(server.url, **wrong).schema(schema_id(number, kind))
            assert "sesame" not in repr((caught.value, wrong, SchemaRegistryConfig(url=server.url, **wrong)))


def test_apicurio_gets_the_login(scripted):
    with RegistryServer(login=("alice", PASSWORD)) as server:
        api = asked(server.url, username="alice", password=Secret(PASSWORD), wire_format="apicurio")
        with pytest.raises(RegistryUnavailable, match="HTTP 404"):  # it has let us in, and has no such path
            api.schema(schema_id(1, "global id"))


def test_tls(tmp_path):
    authority, client = Authority(), Authority("Another")
    server, person = authority.server(), client.client()
    files = {"ca": authority.certificate, "server": server.both, "person": person.both, "client": client.certificate}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server")
    context.load_verify_locations(tmp_path / "client")
    context.verify_mode = ssl.CERT_REQUIRED
    with RegistryServer(context=context) as running:
        number = running.register("orders-value", samples.OLD)
        trusted = {"ca_file": str(tmp_path / "ca"), "certificate_file": str(tmp_path / "person")}
        assert asked(running.url, **trusted).schema(schema_id(number)).kind == AVRO
        with pytest.raises(RegistryUnavailable, match="HTTP 404"):
            asked(running.url, wire_format="apicurio", **trusted).schema(schema_id(number, "global id"))
        for wire_format, kind in (("confluent", "id"), ("apicurio", "global id")):
            with pytest.raises(RegistryUnavailable, match=r"did not answer .*certificate verify failed"):
                asked(running.url, wire_format=wire_format).schema(schema_id(number, kind))
            with pytest.raises(ConfigError, match="its certificates cannot be used"):
                asked(running.url, wire_format=wire_format, ca_file=str(tmp_path / "nothing"))
