"""Advice: each trap is found, and a configuration without traps gets no advice."""

from __future__ import annotations

import pytest

from multilane.config.app.advice import advice
from unit.config.app import samples

QUIET = """\
clusters:
  k:
    clientId: c
    brokers: b
    version: "4.0.0"
    errorConfig: {groupId: e, cron: "*/5 * * * *"}
    producerConfig: {requiredAcks: WaitForAll}
consumers:
  c: {groupId: g, name: t, cluster: k, retry: t.retry, error: t.error, retryCount: 2, virtualPartitionCount: 200}
producers:
  p: {name: out, cluster: k}
"""
SHOVEL = "{groupId: s, topics: [t.error], maxErrorCount: 1, cluster: K, cron: '@daily'}"
ERROR_CONSUMER = 'errorConfig: {groupId: e, cron: "*/5 * * * *"}'


def changed(old, new):
    assert old in QUIET
    return QUIET.replace(old, new)


def adding(keys):
    return changed("retryCount: 2", f"retryCount: 2, {keys}")


def beside(keys):
    return changed("producers:", f"  d: {{{keys}}}\nproducers:")


def test_a_quiet_configuration(loaded):
    assert advice(loaded(QUIET).config) == ()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (changed('"4.0.0"', '"2.2.0"'), "version is 2.2.0"),
        (changed("*/5 * * * *", "0 */5 * * *"), "every 5 hours, not minutes"),
        (changed("*/5 * * * *", "CRON_TZ=UTC 0 */5 * * *"), "every 5 hours, not minutes"),
        (changed("WaitForAll", "WaitForLocal"), "requiredAcks is 1"),
        (changed("retryCount: 2", "retryCount: 0"), "retryCount is 0 or not set"),
        (changed(", retryCount: 2", ""), "retryCount is 0 or not set"),
        (adding("disableErrorConsumer: true"), "no consumer reads t.error, because disableErrorConsumer"),
        (changed(ERROR_CONSUMER, "errorConfig:"), "no consumer reads t.error, because its cluster"),
        (adding("laneHash: bytesum"), "200 lanes with laneHash bytesum"),
        (adding("maxProcessingTime: 60s, virtualPartitionChanCount: 1"), "maxProcessingTime is 1m"),
        (adding("maxProcessingTime: 10s"), "are 12m30s for one key"),
        (changed("groupId: e", "groupId: g"), "share the group g"),
        (beside("groupId: h, name: u, cluster: K, error: t.error"), "c, d share the error topic t.error"),
        (beside("groupId: h, name: u, cluster: K, retry: t.retry, retryCount: 1, error: v"), "share the retry topic"),
        (beside("groupId: g, name: u, cluster: K, error: v"), "consumers.c, consumers.d share the group g"),
        (adding("sessionTimeout: 20s"), "sessionTimeout has no effect"),
        (changed("retry: t.retry, error: t.error, retryCount: 2", "error: t.error, retryBackoff: {}"), "no effect"),
        (changed("error: t.error, ", ""), "fails 3 times is retried in place until it succeeds"),
        (changed("retry: t.retry, error: t.error, retryCount: 2", "onFailure: retry"), "once is retried in place"),
        (changed("retry: t.retry, error: t.error, retryCount: 2", "onFailure: drop"), "is logged and dropped"),
        (adding("onFailure: drop"), "onFailure has no effect"),
        (adding("batchSize: 1"), "batchSize has no effect"),
        (changed("virtualPartitionCount: 200", "virtualPartitionChanCount: 5"), "ChanCount has no effect"),
        (adding("consumeBatchListenerLatency: 1s"), "consumeBatchListenerLatency has no effect"),
        (changed("groupId: e, cron", "groupId: e, tracer: x, cron"), "errorConfig.tracer has no effect"),
        (changed("groupId: e, cron", "groupId: e, sessionTimeout: 9s, cron"), "errorConfig.sessionTimeout has no eff"),
        (
            QUIET + f"errorConsumers: {{s: {SHOVEL}}}",
            "clusters.k.errorConfig and errorConsumers.s both read t.error",
        ),
    ],
)  # fmt: skip
def test_traps(text, found, loaded):
    [hint] = advice(loaded(text).config)
    assert found in hint.found
    assert hint.rule
    assert hint.fix


def test_rules_of_classic_groups(loaded):
    classic = "retryCount: 2, groupProtocol: classic, properties: {group.instance.id: one}"
    assert advice(loaded(changed("retryCount: 2", classic)).config) == ()
    hasty = changed("retryCount: 2", f"{classic}, sessionTimeout: 5s, heartbeatInterval: 3s")
    found = [item.found for item in advice(loaded(hasty).config)]
    assert len(found) == 2
    assert "heartbeat.interval.ms is 3000" in found[0]
    assert "the broker allows 6000 to 1800000" in found[1]
    [static] = advice(loaded(changed("retryCount: 2", "retryCount: 2, groupProtocol: classic")).config)
    assert "without group.instance.id" in static.found


def test_a_shovel_reads_an_error_topic(loaded):
    shovel = "errorConsumers: {s: {groupId: s, topics: [t.error], cron: '@daily', maxErrorCount: 1, cluster: K}}\n"
    text = changed(ERROR_CONSUMER, "errorConfig:") + shovel
    assert advice(loaded(text).config) == ()
    hours = text.replace("@daily", "15 */2 * * *")
    [hint] = advice(loaded(hours).config)
    assert hint.found.startswith("errorConsumers.s.cron")


def test_the_legacy_samples_have_their_traps(loaded):
    config = loaded(samples.CLUSTERS, samples.CONSUMERS, samples.PRODUCERS, samples.SHOVELS, profile="stage").config
    text = "\n".join(item.found for item in advice(config))
    for trap in ("version is 2.2.0", "every 5 hours", "requiredAcks is 1", "share the error topic shop.orders.0.error"):
        assert trap in text
