"""Passwords in clear are found by their meaning, and variables are no passwords."""

from __future__ import annotations

import pytest

from multilane.config.app.literal_secrets import literal_secrets

PEM = "-----BEGIN CERTIFICATE-----"


def found(text: str) -> list[str]:
    return [f"{location.line} {key}" for location, key in literal_secrets(text.encode(), "x")]


def of_properties(entry: str) -> list[str]:
    return found(f"clusters:\n  k:\n    properties:\n      {entry}\n")


@pytest.mark.parametrize(
    "entry",
    [
        "sasl.password: hunter2",
        "saslPassword: hunter2",
        "SASL_PASSWORD: 12345",
        "kafka.sasl.password: 'hunter2'",
        "sasl.password: '${NAME:-hunter2}'",
        "sasl.password: $${NAME}",
        "sasl.jaas.config: 'X required password=\"hunter2\";'",
        "ssl.key.password: hunter2",
    ],
)
def test_secret_properties_in_clear(entry):
    [line] = of_properties(entry)
    assert line.replace('"', "") == f"4 clusters.k.properties.{entry.partition(':')[0]}"


@pytest.mark.parametrize(
    "entry",
    [
        "sasl.password: ${NAME}",
        "sasl.password: '${NAME:-}'",
        "sasl.password:",
        "sasl.jaas.config: 'X required password=\"${NAME}\";'",
        "sasl.username: hunter2  # no password",
        "ssl.key.location: /keys/password.pem",
        f"ssl.truststore.certificates: '{PEM} password'",
        "password: hunter2",
    ],
)
def test_no_secrets(entry):
    assert of_properties(entry) == []


def test_the_password_of_a_cluster():
    assert found("k: {brokers: b, Auth: {username: u, Password: hunter2}}") == ["1 k.auth.Password"]
    assert found("k: {brokers: b, auth: {username: u, password: '${NAME}'}}") == []
    assert found("k: {image: db, auth: {username: u, password: hunter2}}") == [], "of another program"
    assert found("k: {brokers: b, schemaRegistry: {url: u, password: hunter2, token: x}}") == [
        "1 k.schemaRegistry.password",
        "1 k.schemaRegistry.token",
    ]
    assert found("k: {brokers: b, schemaRegistry: {url: u, token: '${NAME}'}}") == []
    assert found("x: &x\n  auth: {password: hunter2}\nk: {<<: *x, brokers: b}") == ["2 k.auth.password"]


def test_any_place_and_each_once():
    shared = "pass: &p hunter2\n"
    assert found(shared + "profiles: {a: {consumers: [{properties: {sasl.password: *p}}]}}") == [
        '1 profiles.a.consumers.properties."sasl.password"'
    ]
    twice = shared + "a: {properties: {sasl.password: *p}}\nb: {properties: {sasl.password: *p}}"
    assert len(found(twice)) == 1
    many = "a: {properties: {sasl.password: x}}\nb: {properties: {ssl.key.password: y}}"
    assert [line.partition(" ")[0] for line in found(many)] == ["1", "2"]


@pytest.mark.parametrize(
    "data",
    [
        b"properties: {sasl.password: x",
        b"\xff properties: {sasl.password: x}",
        b"- properties: {sasl.password: x}",
        b"properties = {'password': key}\n",
        b'{"type": "object", "properties": {"password": {"type": "string"}}}',
    ],
)
def test_what_is_no_configuration(data):
    assert literal_secrets(data, "x") == []
