"""parse_consumer: defaults, parsing, ranges, and checks across properties."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.config.consumer import ConsumerConfig, parse_consumer
from multilane.config.properties import PropertyKind
from multilane.config.reset import OffsetReset, ResetPolicy, parse_duration
from multilane.config.spelling import PROPERTIES
from multilane.errors import ConfigError


def parse(**more: Any) -> ConsumerConfig:
    return parse_consumer({"bootstrap.servers": "a:1", **more})


def fault(**more: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(**more)
    assert caught.value.__cause__ is None
    return str(caught.value)


def test_defaults() -> None:
    config = parse()
    assert config.fetch_max_bytes == 50 << 20
    assert config.fetch_max_wait == 0.5
    assert config.fetch_buffer_bytes == 128 << 20
    assert config.max_decompressed_bytes == 64 << 20
    assert config.corrupt_refetches == 2
    assert config.check_crcs
    assert not config.read_committed
    assert not config.allow_auto_create_topics
    assert config.auto_offset_reset == OffsetReset(ResetPolicy.NONE)
    assert config.group_id is None
    assert config.group.group_protocol == "auto"
    assert config.group.enable_auto_commit
    assert config.group.session_timeout == 45.0
    assert config.warnings == ()


def test_without_secrets_it_can_be_pickled() -> None:
    config = parse(**{"group.id": "g"})
    assert pickle.loads(pickle.dumps(config)) == config  # noqa: S301 - our own bytes


class TestNumbers:
    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            (250, 0.25),
            ("250", 0.25),
            (" 250 ", 0.25),
            ("250ms", 0.25),
            ("2s", 2.0),
            (timedelta(seconds=3), 3.0),
            (0, 0.0),
        ],
    )
    def test_durations(self, value: object, seconds: float) -> None:
        assert parse(**{"fetch.max.wait.ms": value}).fetch_max_wait == seconds

    @pytest.mark.parametrize(
        ("value", "size"), [(5, 5), ("5", 5), ("64kb", 65_536), ("1MB", 1 << 20), ("1MiB", 1 << 20)]
    )
    def test_sizes(self, value: object, size: int) -> None:
        assert parse(**{"max.partition.fetch.bytes": value}).max_partition_fetch_bytes == size

    @pytest.mark.parametrize(
        "value",
        [True, 1.5, float("nan"), "", "x", "1.5", "1e3", "10 parsecs", "\u0661", "9" * 100, b"1", [1], object()],
    )
    @pytest.mark.parametrize("name", ["max.poll.records", "fetch.max.wait.ms", "fetch.min.bytes"])
    def test_invalid_values(self, name: str, value: object) -> None:
        message = fault(**{name: value})
        assert message.startswith(f"{name}: ")
        assert PROPERTIES[name].kind.value in message
        assert message.isprintable()

    @pytest.mark.parametrize("name", [row.name for row in PROPERTIES.values() if row.minimum is not None])
    def test_ranges(self, name: str) -> None:
        row = PROPERTIES[name]
        assert row.minimum is not None
        assert row.maximum is not None
        for number in (row.minimum - 1, row.maximum + 1):
            text = fault(**{name: number})
            assert text == f"{name}: {number} is out of range; write a number between {row.minimum} and {row.maximum}"

    def test_a_number_too_long_to_print(self) -> None:
        assert "the number is out of range" in fault(**{"max.poll.records": 10**5000})

    def test_a_unit_where_none_is_allowed(self) -> None:
        assert "a whole number" in fault(**{"max.poll.records": "5s"})


class TestWords:
    @pytest.mark.parametrize("value", [True, "true", "TRUE", " True "])
    def test_flags(self, value: object) -> None:
        assert parse(**{"allow.auto.create.topics": value}).allow_auto_create_topics

    @pytest.mark.parametrize("value", ["yes", 1, 0, "", "on"])
    def test_no_flags(self, value: object) -> None:
        assert "write true or false" in fault(**{"check.crcs": value})

    @pytest.mark.parametrize("value", ["read_committed", "READ_COMMITTED", "read-committed"])
    def test_isolation(self, value: str) -> None:
        assert parse(**{"isolation.level": value}).read_committed

    def test_a_wrong_choice_gets_the_valid_ones(self) -> None:
        message = fault(**{"isolation.level": "serializable"})
        assert "'serializable' is not valid; write one of 'read_uncommitted', 'read_committed'" in message


class TestReset:
    @pytest.mark.parametrize(
        ("text", "policy"),
        [
            ("none", ResetPolicy.NONE),
            ("error", ResetPolicy.NONE),
            ("earliest", ResetPolicy.EARLIEST),
            ("smallest", ResetPolicy.EARLIEST),
            ("oldest", ResetPolicy.EARLIEST),
            ("LATEST", ResetPolicy.LATEST),
            ("largest", ResetPolicy.LATEST),
            ("newest", ResetPolicy.LATEST),
        ],
    )
    def test_words(self, text: str, policy: ResetPolicy) -> None:
        assert parse(**{"auto.offset.reset": text}).auto_offset_reset == OffsetReset(policy)

    def test_by_duration(self) -> None:
        reset = parse(**{"auto.offset.reset": "by_duration:P2DT3H4M5.25S"}).auto_offset_reset
        assert reset == OffsetReset(ResetPolicy.BY_DURATION, 2 * 86_400 + 3 * 3_600 + 4 * 60 + 5.25)

    @pytest.mark.parametrize("text", ["", "first", "by_duration", "by_duration:", "by_duration:1h", "by_duration:P1Y"])
    def test_no_policy(self, text: str) -> None:
        assert "by_duration:P1DT12H" in fault(**{"auto.offset.reset": text})

    def test_the_future(self) -> None:
        assert "negative" in fault(**{"auto.offset.reset": "by_duration:-PT1H"})

    @pytest.mark.parametrize(
        ("text", "seconds"),
        [
            ("PT0S", 0),
            ("P1D", 86_400),
            ("pt1h", 3_600),
            ("PT20.345S", 20.345),
            ("P-1D", -86_400),
            ("-P-1D", 86_400),
            ("PT-6H+3M", -21_420),
            ("-PT-6H+3M", 21_420),
            ("PT-0.5S", -0.5),
            ("+PT1M", 60),
        ],
    )
    def test_java_durations(self, text: str, seconds: float) -> None:
        assert parse_duration(text) == pytest.approx(seconds)

    @pytest.mark.parametrize(
        "text", ["", "P", "PT", "P1DT", "1D", "PT1", "P1H", "PT1D", "P1W", "PT.5S", "P1.5D", "PT1S "]
    )
    def test_values_that_java_refuses(self, text: str) -> None:
        assert parse_duration(text) is None


class TestAddresses:
    @pytest.mark.parametrize(
        ("value", "addresses"),
        [
            ("a:1", (("a", 1),)),
            (" a.b-c.d:65535 , 10.0.0.1:9092,", (("a.b-c.d", 65_535), ("10.0.0.1", 9_092))),
            (["a:1", "b:2"], (("a", 1), ("b", 2))),
            (("b:2", "a:1", "b:2"), (("b", 2), ("a", 1))),
            ("[::1]:9092,[2001:db8::7]:1", (("::1", 9_092), ("2001:db8::7", 1))),
        ],
    )
    def test_read(self, value: object, addresses: tuple[tuple[str, int], ...]) -> None:
        assert parse_consumer({"bootstrap.servers": value}).connection.bootstrap_servers == addresses

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("a", "has no port; write a:9092"),
            ("a:", "has no port; write a:9092"),
            ("[::1]", r"has no port; write [::1]:9092"),
            ("a:0", "port outside 1 to 65535"),
            ("a:65536", "port outside 1 to 65535"),
            ("a:x", "port that is not a number"),
            ("a:-1", "port that is not a number"),
            ("a:\u0661", "port that is not a number"),
            ("[::1]9092", "port that is not a number"),
            ("::1:9092", "brackets"),
            ("[a]:9092", "no IPv6 address"),
            (":9092", "no valid host name"),
            ("a b:9092", "no valid host name"),
            ("PLAINTEXT://a:9092", "has a scheme"),
            ("user:canary@a:9092", "contains an @"),
            ("", "is empty"),
            (",", "is empty"),
            ([], "is empty"),
            ([1], "a list"),
            (9092, "a list"),
            ({"a": 1}, "a list"),
        ],
    )
    def test_refused(self, value: object, text: str) -> None:
        with pytest.raises(ConfigError) as caught:
            parse_consumer({"bootstrap.servers": value})
        assert text in str(caught.value)
        assert "canary" not in str(caught.value)

    def test_missing(self) -> None:
        with pytest.raises(ConfigError, match=r"bootstrap\.servers is not set"):
            parse_consumer({})


class TestTogether:
    def test_a_wait_must_end_before_its_request(self) -> None:
        message = fault(**{"fetch.wait.max.ms": 5_000, "request.timeout.ms": 5_000})
        assert message == "fetch.wait.max.ms must be below request.timeout.ms"

    def test_a_full_response_must_be_acceptable(self) -> None:
        assert "receive.message.max.bytes must be at least" in fault(**{"receive.message.max.bytes": 50 << 20})
        parse(**{"receive.message.max.bytes": (50 << 20) + 512})

    @pytest.mark.parametrize("stem", ["retry.backoff", "reconnect.backoff", "socket.connection.setup.timeout"])
    def test_limits(self, stem: str) -> None:
        first, limit = f"{stem}.ms", f"{stem}.max.ms"
        assert fault(**{first: 2, limit: 1}) == f"{first} is above {limit}"
        config = parse(**{first: 90_000}).connection
        limits = (config.retry_backoff_max, config.reconnect_backoff_max, config.connect_timeout_max)
        assert 90.0 in limits

    def test_idle_connections_may_be_kept(self) -> None:
        assert parse(**{"connections.max.idle.ms": -1}).connection.connections_max_idle is None

    def test_client_id(self) -> None:
        assert parse(**{"client.id": "orders 1"}).connection.client_id == "orders 1"
        for bad in ("x" * 250, "a\nb"):
            assert "printable" in fault(**{"client.id": bad})


class TestGroup:
    def test_classic(self) -> None:
        strategy = "org.apache.kafka.clients.consumer.CooperativeStickyAssignor, range"
        config = parse(**{"group.id": "g", "partition.assignment.strategy": strategy, "group.instance.id": "i"})
        assert config.group_id == "g"
        assert config.group.partition_assignment_strategy == ("cooperative-sticky", "range")
        assert config.group.group_instance_id == "i"

    def test_consumer(self) -> None:
        config = parse(**{"group.id": "g", "group.protocol": "CONSUMER", "group.remote.assignor": "uniform"})
        assert config.group.group_protocol == "consumer"
        assert config.group.group_remote_assignor == "uniform"

    @pytest.mark.parametrize("name", ["session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"])
    def test_properties_that_the_new_protocol_leaves_to_the_broker(self, name: str) -> None:
        value = "range" if PROPERTIES[name].kind is PropertyKind.OBJECTS else 4_000
        message = fault(**{"group.protocol": "consumer", name: value})
        assert message == f"{name} cannot be set with group.protocol=consumer"

    def test_properties_that_the_old_protocol_lacks(self) -> None:
        message = fault(**{"group.protocol": "classic", "group.remote.assignor": "uniform"})
        assert message == "group.remote.assignor cannot be set with group.protocol=classic"

    def test_the_properties_set_decide_the_protocol_under_auto(self) -> None:
        assert parse(**{"session.timeout.ms": 9_000}).group.group_protocol == "classic"
        assert parse(**{"group.remote.assignor": "uniform"}).group.group_protocol == "consumer"
        message = fault(**{"session.timeout.ms": 9_000, "group.remote.assignor": "uniform"})
        assert "session.timeout.ms belongs to group.protocol=classic" in message
        assert "remove one" in message
        both = {"partition.assignment.strategy": "range", "group.remote.assignor": "range"}
        assert parse(**both).group.group_protocol == "auto", "either protocol has an assignor"
        assert "remove one" in fault(**both, **{"session.timeout.ms": 9_000})

    def test_an_assignor_of_the_application(self) -> None:
        class Mine:
            name = "mine"

        mine = Mine()
        group = parse(**{"partition.assignment.strategy": [mine, "range"]}).group
        assert group.partition_assignment_strategy == ("mine", "range")
        assert group.own_assignors == (mine,)
        assert "an object of type int" in fault(**{"partition.assignment.strategy": [3]})

    def test_heartbeats_fit_in_a_session(self) -> None:
        message = fault(**{"sessionTimeout": "3s"})
        assert message == "heartbeat.interval.ms must be below sessionTimeout"

    @pytest.mark.parametrize("strategy", ["", "own.Assignor", "range,range"])
    def test_assignors(self, strategy: str) -> None:
        assert "partition.assignment.strategy" in fault(**{"partition.assignment.strategy": strategy})

    def test_an_instance_belongs_to_a_group(self) -> None:
        assert "without group.id" in fault(**{"group.instance.id": "i"})


VALUES = st.one_of(
    st.text(max_size=30),
    st.integers(),
    st.booleans(),
    st.floats(),
    st.binary(max_size=4),
    st.lists(st.text(max_size=5)),
)


@given(st.dictionaries(st.sampled_from(sorted(PROPERTIES)), VALUES, max_size=4))
def test_any_values_give_a_config_or_a_config_error(properties: dict[str, object]) -> None:
    try:
        config = parse_consumer({"bootstrap.servers": "a:1", **properties})
    except ConfigError as error:
        assert str(error).isprintable()  # noqa: PT017 - either outcome is fine, no other is
    else:
        hash(config)
