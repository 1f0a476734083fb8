"""The supported files: legacy ones and the file with all sections; how they are read and how they merge."""

from __future__ import annotations

import pytest

from multilane.config.app.clients import consumer_properties
from multilane.config.app.loading import load_app
from multilane.errors import ConfigError
from unit.config.app import samples


def test_the_four_legacy_files(loaded):
    config = loaded(samples.CLUSTERS, samples.CONSUMERS, samples.PRODUCERS, samples.SHOVELS, profile="stage").config
    main, guarded = config.cluster("MAIN"), config.cluster("guarded")
    assert main.brokers == ("main-1.example:9092", "main-2.example:9092")
    assert guarded.brokers == ("guarded-1.example:9094", "guarded-2.example:9094")
    assert main.error is not None
    assert (main.error.max_error_count, main.error.close_when_no_message) == (3, 600.0)
    assert (main.error.close_when_message_is_new, main.error.max_processing_time) == (1200.0, 10.0)
    assert (main.producer.required_acks, main.producer.timeout) == ("1", 5.0)
    assert guarded.auth is not None
    assert guarded.auth.certificates == ("ca.pem",)
    assert guarded.auth.password.reveal() == "correct horse"
    assert list(config.consumers) == ["single", "batchConsumer", "uniqueConsumer"]
    assert config.consumer("uniqueconsumer").retry_order == "key"
    assert config.consumer("batchconsumer").waiting_per_lane == 30 * 75
    assert config.producer("ORDERINDEXED").topic == "shop.order.indexed.0"
    assert config.shovel("parcels").topics == ("shop.parcels.0.error", "shop.parcels.1.error")


def test_defaults_are_those_of_the_code(loaded):
    config = loaded(
        "k: {clientId: c, brokers: b, errorConfig: {groupId: e, cron: '@daily'}}",
        "c: {groupId: g, name: t, cluster: k}",
        "s: {groupId: s, topics: [x], cron: '@daily', maxErrorCount: 1, cluster: k}",
    ).config
    cluster, consumer, shovel = config.cluster("k"), config.consumer("c"), config.shovel("s")
    error, producer = cluster.error, cluster.producer
    assert error is not None
    assert (error.max_error_count, error.max_processing_time, error.offset_initial) == (1, 1.0, "oldest")
    assert (error.close_when_no_message, error.close_when_message_is_new) == (300.0, 300.0)
    assert (shovel.close_when_no_message, shovel.close_when_message_is_new) == (60.0, 60.0)
    assert (producer.required_acks, producer.timeout, producer.compression) == ("1", 10.0, "none")
    assert producer.max_message_bytes == 1 << 20
    for reader in (error, shovel, consumer):
        assert (reader.session_timeout, reader.rebalance_timeout, reader.heartbeat_interval) == (10.0, 60.0, 3.0)
        assert reader.fetch_max_bytes == 1 << 20
    assert (consumer.retry_count, consumer.lanes, consumer.batch_size, consumer.waiting_per_lane) == (0, 0, 0, 75)
    assert (consumer.batch_latency, consumer.max_processing_time, consumer.offset_initial) == (3.0, 1.0, "newest")
    assert (consumer.tracer, consumer.error_consumer_disabled, consumer.unique) == ("g", False, False)
    assert (consumer.order_by, consumer.retry_order, consumer.lane_hash, consumer.ack) == ("key", "none", "key", "auto")
    assert (consumer.commit_interval, consumer.processes, consumer.retry_backoff) == (1.0, 0, None)

    assert (consumer.on_failure, consumer.error_breaker) == ("drop", None)
    assert shovel.max_processing_time == 1.0


KEYS = "{groupId: g, name: t, cluster: k, retry: r}"
CLUSTER = "{clientId: c, brokers: b, errorConfig: {groupId: e, cron: '@daily'}}"
SHOVEL = "{groupId: s, topics: [x], cron: '@daily', maxErrorCount: 1, cluster: k}"


def test_a_multilane_yaml_has_safer_defaults(loaded):
    text = f"clusters: {{k: {CLUSTER}}}\nconsumers: {{c: {KEYS}}}\nerrorConsumers: {{s: {SHOVEL}}}"
    config = loaded(text).config
    cluster, consumer = config.cluster("k"), config.consumer("c")
    assert (consumer.retry_order, consumer.on_failure, consumer.max_processing_time) == ("key", "retry", 30.0)
    backoff = consumer.retry_backoff
    assert backoff is not None
    assert (backoff.kind, backoff.delay, backoff.maximum, backoff.jitter) == ("exponential", 1.0, 60.0, 0.2)
    assert consumer.max_processing_time <= consumer.rebalance_timeout / 2, "a call at its limit ends in a rebalance"
    breaker = consumer.error_breaker
    assert breaker is not None
    assert (breaker.action, breaker.share, breaker.minimum) == ("pause", 0.5, 5)
    assert cluster.error is not None
    assert (cluster.error.max_processing_time, config.shovel("s").max_processing_time) == (30.0, 30.0)


@pytest.mark.parametrize("key", ["orderBy: none", "ack: manual"])
def test_order_across_a_retry_is_not_the_default_where_order_is_given_up(loaded, key):
    consumer = f"{{groupId: g, name: t, cluster: k, retry: r, {key}}}"
    config = loaded(f"clusters: {{k: {CLUSTER}}}\nconsumers: {{c: {consumer}}}").config
    assert config.consumer("c").retry_order == "none"


def test_each_file_has_the_defaults_of_its_own_layout(loaded):
    config = loaded(
        f"clusters: {{k: {CLUSTER}}}\nconsumers: {{new: {KEYS}}}", f"old: {KEYS.replace('g,', 'h,')}"
    ).config
    assert config.consumer("new").retry_order == "key"
    assert config.consumer("old").retry_order == "none"
    assert config.consumer("old").max_processing_time == 1.0


def test_every_safer_default_can_be_undone_and_had(loaded):
    keys = "groupId: g, name: t, cluster: k, retry: r, retryOrder: %s, onFailure: %s"
    old = loaded(f"clusters: {{k: {CLUSTER}}}\nconsumers: {{c: {{{keys % ('none', 'drop')}}}}}").config.consumer("c")
    assert (old.retry_order, old.on_failure) == ("none", "drop")
    new = loaded(f"k: {CLUSTER}", f"c: {{{keys % ('key', 'retry')}}}").config.consumer("c")
    assert (new.retry_order, new.on_failure) == ("key", "retry")


def test_a_breaker_in_a_legacy_file_stops_the_app(loaded):
    breaker = (
        loaded(f"k: {CLUSTER}", f"c: {KEYS[:-1]}, errorBreaker: {{share: 30%}}}}").config.consumer("c").error_breaker
    )
    assert breaker is not None
    assert (breaker.action, breaker.share, breaker.minimum) == ("stop", 0.3, 100)


def test_one_file_with_everything(loaded):
    config = loaded(samples.WHOLE).config
    consumer = config.consumer("Orders.EU")
    assert config.cluster("main").brokers == ("localhost:9092",)
    assert consumer.retry_backoff is not None
    assert consumer.retry_backoff.model_dump() == {
        "kind": "exponential", "delay": 0.5, "maximum": 60.0, "multiplier": 1.5, "jitter": 0.2,
    }  # fmt: skip
    assert consumer.error_breaker is not None
    expected = {"action": "pause", "share": 0.5, "window": 120.0, "minimum": 20}
    assert consumer.error_breaker.model_dump() == expected
    assert consumer.lane_classes == {"slow": 5, "Bulk": 2}
    assert (consumer.max_in_flight_bytes, consumer.commit_interval, consumer.processes) == (64 << 20, 0.25, 2)
    assert (consumer.ack, consumer.lane_hash, consumer.group_protocol) == ("manual", "murmur2", "classic")
    assert config.shovel("again").cron.startswith("CRON_TZ=")


def test_a_profile_lies_over_the_common_sections(loaded):
    config = loaded(samples.WHOLE, profile="STAGE").config
    consumer = config.consumer("orders.eu")
    assert config.cluster("main").brokers == ("stage.example:9092",)
    assert dict(config.cluster("main").properties) == {"linger.ms": "20"}, "a key without a value takes one away"
    assert (consumer.lanes, consumer.group_id) == (4, "shop")
    assert consumer.retry_backoff is not None
    assert (consumer.retry_backoff.jitter, consumer.retry_backoff.delay) == (0.0, 0.5)
    assert loaded(samples.WHOLE, profile="empty").config == loaded(samples.WHOLE).config


def test_a_profile_must_be_chosen_and_be_there(problems):
    [(_, _, what, fix)] = problems(samples.CLUSTERS)
    assert "has only profiles" in what
    assert "stage, live" in fix
    assert problems(samples.CLUSTERS, profile="stge")[0][3] == "did you mean stage?"
    assert problems(samples.WHOLE, profile="stag")[0][3] == "did you mean stage?"
    assert "no file has profiles" in problems(samples.PRODUCERS, profile="stage")[0][2]


def test_only_the_chosen_profile_needs_its_variables(loaded, problems):
    text = """
clusters: {k: {clientId: c}}
profiles: {a: {clusters: {k: {brokers: "${A}"}}}, b: {clusters: {k: {brokers: x}}}}
"""
    assert loaded(text, profile="b").config.cluster("k").brokers == ("x:9092",)
    assert problems(text, profile="a")[0][2] == "the environment has no variable A"


@pytest.mark.parametrize(
    ("text", "section"),
    [
        ("x: {clientId: c, brokers: b}", "clusters"),
        ("x: {name: t, cluster: k}", "producers"),
        ("x: {groupId: g, name: t, cluster: k}", "consumers"),
        ("x: {grupId: g, name: t, cluster: k}", "consumers"),
        ("x: {groupId: g, topics: t, cluster: k}", "errorConsumers"),
        ("consumers: {groupId: g, name: t, cluster: k}", "consumers"),
    ],
)
def test_a_file_is_known_by_its_keys(text, section, problems):
    paths = [path for _, path, _, _ in problems(text + "\nzz: {nonsense: 1}")]
    assert paths
    assert all(path.startswith(f"{section}.") for path in paths)


def test_a_file_without_content(problems):
    assert "do not show what this file configures" in problems("a: {b: 1, c: 2}")[0][2]
    for text in ("", "# nothing\n", "---\n"):
        assert "the file is empty, so an app would read nothing" in problems(text)[0][2]
        assert "the file is empty" in problems("clusters: {k: {clientId: c, brokers: b}}", text)[0][2]
    assert "this configures nothing" in problems("clusters:\nconsumers: {}\n# nothing\n")[0][2]
    what, fix = problems("profiles: {stage: {clusters: {k: {clientId: c, brokers: b}}}}")[0][2:]
    assert ("this configures nothing" in what, fix) == (True, "choose one with `profile`: stage")


def test_a_section_misspelt(problems):
    assert problems("clusters: {}\nconsumer: {a: {groupId: g}}")[0][1:] == (
        "consumer", "unknown section", "did you mean consumers or errorConsumers?",
    )  # fmt: skip
    assert "did you mean clusters?" in problems("clustrs: {k: {clientId: c, brokers: b}}")[0][3]
    assert problems("clusters: {k: {clientId: c, brokers: b}}\nconsumers: 5")[0][2] == "this section is not a mapping"
    assert problems("clusters: 5")[0][1:3] == ("clusters", "this section is not a mapping")


def test_a_name_twice(problems):
    one, two = "a: {name: t, cluster: k}", "\nA: {name: t, cluster: k}"
    [(line, path, what, _)] = [p for p in problems(one + two) if "cluster" not in p[1]]
    assert (line, path) == (2, "A")
    assert "duplicate key" in what
    across = problems(one, two.strip(), "k: {clientId: c, brokers: b}")
    assert [path for _, path, _, _ in across] == ["producers.A"]
    assert "one.yaml:1:1" in across[0][2]
    shoveled = "{groupId: g, topics: x, cron: '@daily', maxErrorCount: 1, cluster: k}"
    both = problems(
        f"shovels: {{s: {shoveled}}}\nerrorConsumers: {{s: {shoveled}}}\nclusters: {{k: {{clientId: c, brokers: b}}}}"
    )
    assert "used twice" in both[0][2]


def test_brokers_in_every_form(loaded):
    forms = ["a:1,b", "'a:1 b'", "[a:1, b]", "|\n      a:1\n      b\n", "a:1,\n      b,\n", "['a:1,b']"]
    for form in forms:
        assert loaded(f"clusters:\n  k:\n    clientId: c\n    brokers: {form}").config.cluster("k").brokers == (
            "a:1",
            "b:9092",
        )
    assert loaded("k: {clientId: c, brokers: '[::1]:1,[::2]'}").config.cluster("k").brokers == ("[::1]:1", "[::2]:9092")


@pytest.mark.parametrize(
    ("word", "reset"),
    [("newest", "latest"), ("OffsetNewest", "latest"), ("LATEST", "latest"),
     ("oldest", "earliest"), ("offsetoldest", "earliest"), ("earliest", "earliest")],
)  # fmt: skip
def test_offset_initial_in_every_spelling(word, reset, loaded):
    config = loaded(
        "k: {clientId: c, brokers: b}", f"c: {{groupId: g, name: t, cluster: k, OFFSETINITIAL: {word}}}"
    ).config
    assert consumer_properties(config.consumer("c"), config.cluster("k"))["auto.offset.reset"] == reset


def test_lookups_suggest_names(loaded):
    config = loaded(samples.WHOLE).config
    with pytest.raises(ConfigError, match=r"no consumer 'orders_eu'; did you mean orders\.eu\?"):
        config.consumer("orders_eu")
    with pytest.raises(ConfigError, match="no cluster 'x'; it has: main"):
        config.cluster("x")


def test_load_app_takes_one_path_or_many(written):
    [path] = written(samples.WHOLE)
    assert load_app(path, env={}) == load_app([str(path)], env={})
    with pytest.raises(ConfigError, match="no configuration file"):
        load_app([])


def test_anchors_and_merge_keys(loaded):
    text = """
clusters: {k: &k {clientId: c, brokers: b}, l: {<<: *k, clientId: d}}
consumers:
  one: &one {groupId: g, name: t, cluster: k, retryCount: 0}
  two: {<<: [{groupId: h}, *one], name: u}
"""
    config = loaded(text).config
    assert (config.cluster("l").client_id, config.cluster("l").brokers) == ("d", ("b:9092",))
    two = config.consumer("two")
    assert (two.group_id, two.topic, two.cluster) == ("h", "u", "k")
