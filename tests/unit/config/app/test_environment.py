"""Variables: substituted after YAML parsing, never parsed as YAML."""

from __future__ import annotations

import pytest

PRODUCER = "clusters: {{k: {{clientId: c, brokers: b}}}}\nproducers:\n  p:\n    cluster: k\n    name: {}\n"
LANES = """\
clusters: {k: {clientId: c, brokers: b}}
consumers: {c: {groupId: g, name: t, cluster: k, virtualPartitionCount: "${N}"}}
"""


@pytest.mark.parametrize(
    ("written_as", "env", "topic"),
    [
        ("${T}", {"T": "orders"}, "orders"),
        ("a.${T}.${U}", {"T": "x", "U": "y"}, "a.x.y"),
        ("${T:-other}", {}, "other"),
        ("${T:-other}", {"T": ""}, "other"),
        ("${T:-other}", {"T": "mine"}, "mine"),
        ("'${T:-other}'", {}, "other"),
        ("x${T:-}", {}, "x"),
        ("${T}", {"T": "007"}, "007"),
    ],
)
def test_variables(written_as, env, topic, loaded):
    assert loaded(PRODUCER.format(written_as), env=env).config.producer("p").topic == topic


def test_a_number_from_a_variable_is_a_number(loaded):
    assert loaded(LANES, env={"N": "12"}).config.consumer("c").lanes == 12


def test_a_secret_keeps_its_characters(loaded):
    text = "clusters: {k: {clientId: c, brokers: b, auth: {username: '${U}', password: '${P}'}}}"
    for password in ("007", "true", "null", " a: b # c ", "${U}", "$${x}", "{x}"):
        auth = loaded(text, env={"U": "u", "P": password}).config.cluster("k").auth
        assert auth is not None
        assert auth.password.reveal() == password


def test_the_characters_themselves(loaded):
    text = "clusters: {k: {clientId: 'a$${b}', brokers: b, auth: {username: $u, password: 'p$w$${'}}}"
    cluster = loaded(text).config.cluster("k")
    assert cluster.client_id == "a${b}"
    assert cluster.auth is not None
    assert (cluster.auth.username, cluster.auth.password.reveal()) == ("$u", "p$w${")


def test_a_value_cannot_bring_yaml_along(problems):
    reported = problems(PRODUCER.format("${T}"), env={"T": "orders\n    cluster: other"})
    assert [path for _, path, _, _ in reported] == ["producers.p.name"]
    assert "other" not in reported[0][2]


@pytest.mark.parametrize("written_as", ["${}", "${1X}", "'${T'", "${T:x}", "${T-x}", "'${ T }'"])
def test_invalid_variables(written_as, problems):
    [(line, path, what, fix)] = problems(PRODUCER.format(written_as), env={"T": "x"})
    assert (line, path) == (5, "producers.p.name")
    assert "is not followed by the name of a variable" in what
    assert "${NAME}" in fix


def test_a_missing_variable_is_named_with_its_location(problems):
    [(line, path, what, fix)] = problems(PRODUCER.format("${TOPIC}"))
    assert (line, path, what) == (5, "producers.p.name", "the environment has no variable TOPIC")
    assert fix == "set it, or write ${TOPIC:-default}"


def test_variables_of_required_keys_do_not_count_as_missing_keys(problems):
    text = "clusters: {k: {clientId: '${A}', brokers: ['x', '${B}'], errorConfig: {groupId: e, cron: '${C}'}}}"
    assert [what for _, _, what, _ in problems(text)] == [
        "the environment has no variable A", "the environment has no variable B", "the environment has no variable C",
    ]  # fmt: skip


def test_keys_are_not_interpolated(problems):
    [(_, path, what, _)] = problems("clusters: {k: {clientId: c, brokers: b, '${A}': 1}}", env={"A": "version"})
    assert (path, what) == ("clusters.k.${A}", "unknown key")


def test_bytes_that_are_not_unicode(problems):
    [(_, _, what, _)] = problems(PRODUCER.format("${T}"), env={"T": "x\udcff"})
    assert "not UTF-8" in what
