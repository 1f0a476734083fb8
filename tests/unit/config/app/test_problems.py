"""Every problem, at its line and with a remedy; and never a secret."""

from __future__ import annotations

import pytest

from multilane.config.app.loading import load
from multilane.errors import ConfigProblems

CLUSTER = "clusters: {k: {clientId: c, brokers: b}}\n"


def consumer(rest, more=""):
    return f"{CLUSTER}consumers:\n  c: {{groupId: g, name: t, cluster: k, {rest}}}\n{more}"


def test_all_problems_are_reported_at_once(written):
    text = """\
clusters:
  k:
    brokers: "host:99x"
    errorConfig: {groupId: e, corn: "@daily"}
    properties:
      sasl.pasword: hunter2
      linger.ms: 5x
      group.id: x
consumers:
  a:
    groupId: g
    name: t t
    cluster: d
    maxProcessingTime: 30
    retryCount: ${N}
    unikListener: true
    uniqueListener: true
    properties: {acks: all}
"""
    [path] = written(text)
    with pytest.raises(ConfigProblems) as caught:
        load(path, env={})
    reported = str(caught.value).replace(str(path), "f").splitlines()
    starts = [line.strip().split(";")[0] for line in reported]
    assert starts == [
        "the configuration has 15 problems:",
        "f:2:3: clusters.k.clientId: the key is missing",
        "f:3:14: clusters.k.brokers: 'host:99x' has a port that is not a number",
        "f:4:18: clusters.k.errorConfig.cron: the key is missing",
        "f:4:31: clusters.k.errorConfig.corn: unknown key",
        'f:6:21: clusters.k.properties."sasl.pasword": unknown property',
        "f:7:18: clusters.k.properties.\"linger.ms\": '5x' is not valid",
        'f:8:17: clusters.k.properties."group.id": groupId names the group',
        "f:12:11: consumers.a.name: 't t' is not valid",
        "f:13:14: consumers.a.cluster: there is no cluster with this name",
        "f:14:24: consumers.a.maxProcessingTime: '30': a duration needs a unit",
        "f:15:17: consumers.a.retryCount: the environment has no variable N",
        "f:16:5: consumers.a.unikListener: unknown key",
        "f:17:21: consumers.a.uniqueListener: uniqueListener needs batches",
        "f:17:21: consumers.a.uniqueListener: without lanes, records are handled one at a time and never batched",
        "f:18:24: consumers.a.properties.acks: it is a producer property",
    ]
    assert "did you mean cron?" in str(caught.value)
    assert "did you mean uniqueListener?" in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("rest", "path", "what"),
    [
        ("retryCount: 2", "retryCount", "there is no retry topic"),
        ("uniqueListener: true, virtualPartitionCount: 3", "uniqueListener", "needs batches"),
        ("uniqueListener: true, batchSize: 1, virtualPartitionCount: 3", "uniqueListener", "needs batches"),
        ("batchSize: 5", "batchSize", "without lanes"),
        ("laneClasses: {slow: 1}", "laneClasses", "need ordinary lanes"),
        ("laneClasses: {slow: none}, virtualPartitionCount: 3", "laneClasses", "the class slow has no number"),
        ("laneClasses: 5, virtualPartitionCount: 3", "laneClasses", "not a mapping"),
        ("retry: t", "retry", "is the consumed topic"),
        ("error: t", "error", "is the consumed topic"),
        ("retry: r, error: r", "error", "be retried forever"),
        ("retry: r, retryOrder: key, orderBy: none", "orderBy", "orderBy none does not"),
        ("retryBackoff: {kind: exponential, delay: 2m}", "retryBackoff.maximum", "below delay"),
        ("retryBackoff: 5s", "retryBackoff", "not a mapping"),
        ("errorBreaker: {action: wait}", "errorBreaker.action", "is not valid"),
        ("errorBreaker: {share: 0}", "errorBreaker.share", "is not valid"),
        ("offsetInitial: middle", "offsetInitial", "'middle' is not valid"),
        ("virtualPartitionCount: -1", "virtualPartitionCount", "'-1' is not valid"),
        ("virtualPartitionCount: 1.5", "virtualPartitionCount", "'1.5' is not valid"),
        ("virtualPartitionCount: [1]", "virtualPartitionCount", "not a single value"),
        ("uniqueListener: 7", "uniqueListener", "'7' is not valid"),
        ("fetchMaxBytes: 1tb", "fetchMaxBytes", "not a size"),
        ("fetchMaxBytes: 0", "fetchMaxBytes", "'0' is not valid"),
        ("maxProcessingTime: 0s", "maxProcessingTime", "'0s' is not valid"),
        ("sessionTimeout: 99999999999h", "sessionTimeout", "292 years"),
        ("groupProtocol: classic, group.protocol: consumer", "groupProtocol", "another spelling"),
        ("groupProtocol: consumer, properties: {session.timeout.ms: 5s}", "properties", "cannot be set"),
        ("properties: {enable.auto.commit: true}", 'properties."enable.auto.commit"', "without auto-commit"),
        ("properties: {fetchMessageMaxBytes: 5}, fetchMaxBytes: 7", "properties.fetchMessageMaxBytes", "fetchMaxBytes"),
        ("properties: {bootstrap.servers: x}", 'properties."bootstrap.servers"', "the cluster's `brokers`"),
        ("properties: {key.deserializer: x}", 'properties."key.deserializer"', "not accepted"),
        ("properties: {sasl.username: {a: b}}", "properties", "holds a mapping"),
        ("properties: 5", "properties", "not a mapping"),
        ("properties: {session.timeout.ms: 2s, heartbeat.interval.ms: 3s}", "properties", "must be below"),
        ("properties: {security.protocol: SASL_SSL}", "properties", "sasl.mechanism is not set"),
    ],
)  # fmt: skip
def test_impossible_settings_of_a_consumer(rest, path, what, problems):
    [(line, found, reported, _)] = problems(consumer(rest))
    assert (line, found) == (3, f"consumers.c.{path}")
    assert what in reported


def test_unique_does_not_go_with_retry_in_any_order(problems):
    unique = "uniqueListener: true, batchSize: 9, virtualPartitionCount: 3, retry: r, retryOrder: none"
    [(_, path, what, _)] = problems(consumer(unique))
    assert path == "consumers.c.retryOrder"
    assert "overwrite a newer one" in what


@pytest.mark.parametrize(
    ("cluster", "path", "what"),
    [
        ("clientId: c, brokers: ''", "brokers", "empty"),
        ("clientId: c, brokers: 'u:p@h:1'", "brokers", "an entry contains an @"),
        ("{}, auth: {username: u}", "auth.password", "missing"),
        ("{}, auth: {username: u, password: [x]}", "auth.password", "expected a string"),
        ("{}, errorConfig: {groupId: e, cron: '* * *'}", "errorConfig.cron", "'* * *' is not valid"),
        ("{}, errorConfig: {groupId: e, cron: '@daily', timeZone: X/Y}", "errorConfig.timeZone", "is unknown"),
        ("{}, producerConfig: {requiredAcks: some}", "producerConfig.requiredAcks", "'some' is not valid"),
        ("{}, producerConfig: {maxMessageBytes: 10b}", "producerConfig.maxMessageBytes", "'10b'"),
        ("{}, producerConfig: {requiredAcks: WaitForAll}, properties: {acks: 1}", "properties.acks", "requiredAcks"),
        ("{}, properties: {client.id: x}", 'properties."client.id"', "clientId"),
        ("{}, properties: {transactional.id: x}", 'properties."transactional.id"', "not accepted"),
        ("{}, properties: {enable.idempotence: true}", "properties", "acks must be all"),
        ("{}, properties: {sasl.username: u}", "properties", "security.protocol is PLAINTEXT"),
        ("clientId: [c], brokers: b", "clientId", "not a single value"),
        ("{}, schemaRegistry: {url: 'registry:8081'}", "schemaRegistry.url", "not an http address"),
        ("{}, schemaRegistry: {url: 'http://u:p@h'}", "schemaRegistry.url", "has a login"),
        ("{}, schemaRegistry: {url: 'http://h', username: u}", "schemaRegistry.username", "no password"),
        ("{}, schemaRegistry: {url: 'http://h', password: p}", "schemaRegistry.password", "no username"),
        ("{}, schemaRegistry: {url: 'http://h', username: u, password: p, token: t}", "schemaRegistry.token", "basic"),
        ("{}, schemaRegistry: {url: 'https://h', keyFile: k}", "schemaRegistry.keyFile", "no certificate"),
        ("{}, schemaRegistry: {url: 'http://h', caFile: c}", "schemaRegistry.caFile", "has no TLS"),
        ("{}, schemaRegistry: {url: 'http://h', wireFormat: glue}", "schemaRegistry.wireFormat", "'glue' is not valid"),
    ],
)  # fmt: skip
def test_impossible_settings_of_a_cluster(cluster, path, what, problems):
    text = cluster.replace("{}", "clientId: c, brokers: b", 1)
    [(_, found, reported, _)] = problems(f"clusters: {{k: {{{text}}}}}")
    assert found == f"clusters.k.{path}"
    assert what in reported


def test_topics_that_would_go_round(problems):
    dead = "clusters: {k: {clientId: c, brokers: b, errorConfig: {groupId: e, cron: '@daily', dead: r}}}\n"
    [(_, path, what, _)] = problems(dead + "consumers: {c: {groupId: g, name: t, cluster: K, retry: r}}")
    assert path == "clusters.k.errorConfig.dead"
    assert "consumer c" in what
    keys = "groupId: g, topics: [x, y], cron: '@daily', maxErrorCount: 1, cluster: k, targetTopic: y"
    shovel = f"errorConsumers: {{s: {{{keys}}}}}"
    [(_, path, what, _)] = problems(CLUSTER + shovel)
    assert path == "errorConsumers.s.targetTopic"
    assert "would circulate forever" in what
    twice = shovel.replace("[x, y]", "[x, x]")
    assert problems(CLUSTER + twice)[0][1] == "errorConsumers.s.topics"


def test_required_keys(problems):
    reported = problems("clusters: {k: {}}\nconsumers: {c: {}}\nproducers: {p: }\nerrorConsumers: {s: {version: 1}}")
    missing = {path for _, path, what, _ in reported if what == "the key is missing"}
    assert missing == {
        "clusters.k.clientId", "clusters.k.brokers", "consumers.c.groupId", "consumers.c.name", "consumers.c.cluster",
        "errorConsumers.s.groupId", "errorConsumers.s.topics", "errorConsumers.s.cron",
        "errorConsumers.s.maxErrorCount", "errorConsumers.s.cluster",
    }  # fmt: skip
    assert ("producers.p", "this is not a mapping") in {(path, what) for _, path, what, _ in reported}


def test_an_unknown_cluster_is_named(problems):
    [(_, path, _, fix)] = problems(
        "clusters: {main: {clientId: c, brokers: b}}\nproducers: {p: {name: t, cluster: mian}}"
    )
    assert (path, fix) == ("producers.p.cluster", "did you mean main?")


def test_a_cluster_that_could_not_be_read_is_not_called_missing(problems):
    reported = problems("a: [", "p: {name: t, cluster: k}")
    assert [what.partition(":")[0] for _, _, what, _ in reported] == ["not valid YAML"]


@pytest.mark.parametrize("value", ["geheim\u00e4", "5x", "{a: b}\n- c: ${PATH}"])
@pytest.mark.parametrize(
    "key",
    [
        "sessionTimeout: ${S}", "virtualPartitionCount: ${S}", "offsetInitial: ${S}x", "name: ${S} ${S}",
        "properties: {check.crcs: '${S}'}", "properties: {auto.offset.reset: '${S}'}", "fetchMaxBytes: ${S}",
        "laneClasses: {x: '${S}'}, virtualPartitionCount: 1",
        "properties: {partition.assignment.strategy: ['${S}']}",
    ],
)  # fmt: skip
def test_values_from_the_environment_are_not_repeated(key, value, written):
    text = f"{CLUSTER}consumers:\n  c:\n    groupId: g\n    cluster: k\n"
    lines = "".join(f"    {part.strip()}\n" for part in key.split(", "))
    text += ("" if key.startswith("name") else "    name: t\n") + lines
    with pytest.raises(ConfigProblems) as caught:
        load(written(text), env={"S": value})
    assert value not in str(caught.value)
    assert value not in repr(caught.value)
    assert len(caught.value.problems) == 1


def test_brokers_of_the_environment_are_not_repeated(problems):
    [(_, _, what, fix)] = problems("clusters: {k: {clientId: c, brokers: '${B}'}}", env={"B": "good:1,geheim:x"})
    assert "geheim" not in what + fix
    assert "${B}" in what


def test_errors_hold_no_secret_anywhere(written):
    text = """
clusters:
  k:
    clientId: c
    brokers: b
    auth: {username: u, pasword: geheim1, password: {x: geheim2}}
    properties:
      sasl.jaas.config: geheim3
      ssl.key.pasword: geheim4
      ssl.keystore.password: geheim5
      ssl.key.password: [geheim6]
"""
    with pytest.raises(ConfigProblems) as caught:
        load(written(text), env={})
    error = caught.value
    seen = f"{error} {error!r} {error.args} {error.problems!r} {error.__cause__!r} {error.__context__!r}"
    assert "geheim" not in seen
    assert len(error.problems) >= 4


def test_a_good_configuration_shows_no_secret(loaded):
    text = """
clusters:
  k:
    clientId: c
    brokers: b
    auth: {username: u, password: "${P}"}
    schemaRegistry: {url: "http://h", username: u, password: "${P}"}
    properties: {ssl.key.password: geheim2, ssl.certificate.location: c.pem}
"""
    found = loaded(text, env={"P": "geheim1"})
    for shown in (
        repr(found),
        str(found.config),
        repr(found.config.model_dump()),
        found.config.model_dump_json(fallback=str),
    ):
        assert "geheim" not in shown
