"""One property, many spellings."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from multilane.config.connection import parse_connection
from multilane.config.consumer import parse_consumer
from multilane.config.spelling import PROPERTIES, fold, lookup
from multilane.errors import ConfigError


def parse(**more: Any) -> Any:
    return parse_consumer({"bootstrap.servers": "a:1", **more})


def camel(name: str) -> str:
    head, *tail = name.split(".")
    return head + "".join(word.capitalize() for word in tail)


@pytest.mark.parametrize("name", sorted(PROPERTIES))
def test_cases_and_prefixes_lead_to_the_same_row(name: str) -> None:
    kebab = name.replace(".", "-")
    spellings = [
        name,
        kebab,
        name.replace(".", "_"),
        name.replace(".", "_").upper(),
        camel(name),
        f"kafka.{name}",
        f"spring.kafka.consumer.{kebab}",
        f"spring.kafka.{kebab}",
        f"spring.kafka.properties.{name}",
        f"spring.kafka.properties[{name}]",
        f"spring.kafka.consumer.properties.{name}",
    ]
    assert {lookup(spelling).row.name for spelling in spellings} == {name}


@pytest.mark.parametrize(
    ("key", "name"),
    [
        ("metadata.broker.list", "bootstrap.servers"),
        ("brokers", "bootstrap.servers"),
        ("fetch.wait.max.ms", "fetch.max.wait.ms"),
        ("fetch.message.max.bytes", "max.partition.fetch.bytes"),
        ("sasl.mechanisms", "sasl.mechanism"),
        ("socket.timeout.ms", "request.timeout.ms"),
        ("spring.kafka.consumer.fetch-max-wait", "fetch.max.wait.ms"),
        ("spring.kafka.consumer.fetch-min-size", "fetch.min.bytes"),
        ("spring.kafka.consumer.heartbeat-interval", "heartbeat.interval.ms"),
        ("spring.kafka.consumer.auto-commit-interval", "auto.commit.interval.ms"),
        ("spring.kafka.ssl.trust-store-location", "ssl.truststore.location"),
        ("spring.kafka.ssl.key-store-key", "ssl.keystore.key"),
        ("spring.kafka.security.protocol", "security.protocol"),
        ("ssl.ca.pem", "ssl.truststore.certificates"),
        ("offsetInitial", "auto.offset.reset"),
        ("sessionTimeout", "session.timeout.ms"),
    ],
)
def test_names_of_other_clients(key: str, name: str) -> None:
    assert lookup(key).row.name == name


def test_a_unit_of_its_own_is_converted() -> None:
    assert parse(**{"queued.max.messages.kbytes": 65_536}).fetch_buffer_bytes == 67_108_864


def test_a_range_is_reported_in_the_unit_of_the_spelling() -> None:
    with pytest.raises(ConfigError, match=r"^queued\.max\.messages\.kbytes: -1 is out of range; .* 0 and 1073741824$"):
        parse(**{"queued.max.messages.kbytes": -1})


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("gruop.id", "group.id"),
        ("spring.kafka.consumer.gruop-id", "group.id"),
        ("boostrap.servers", "bootstrap.servers"),
        ("autoOffsetRest", "auto.offset.reset"),
        ("fetch.max.byte", "fetch.max.bytes"),
    ],
)
def test_did_you_mean(key: str, meant: str) -> None:
    with pytest.raises(ConfigError, match=rf"{re.escape(key)}: unknown property; did you mean .*\b{meant}\b.*\?"):
        parse(**{key: "canary"})


def test_without_a_close_match_there_is_no_hint_and_no_value() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(zzzzzz="canary")
    assert str(caught.value) == "zzzzzz: unknown property"


def test_a_name_that_is_no_text() -> None:
    with pytest.raises(ConfigError, match="must be a string, not int"):
        parse_consumer({1: "x"})  # type: ignore[dict-item]


def test_an_unprintable_name_is_reported_cleanly() -> None:
    with pytest.raises(ConfigError) as caught:
        parse(**{"a\x1b[31m\n" + "x" * 500: "1"})
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 200


class TestTwoSpellings:
    def test_with_one_value(self) -> None:
        config = parse(**{"fetch.max.wait.ms": 1000, "fetch.wait.max.ms": "1s", "fetchMaxWaitMs": "1000"})
        assert config.fetch_max_wait == 1.0

    def test_with_two_values_names_both(self) -> None:
        with pytest.raises(ConfigError) as caught:
            parse(**{"fetch.max.wait.ms": 1000, "fetch.wait.max.ms": 999})
        message = str(caught.value)
        assert "fetch.max.wait.ms and fetch.wait.max.ms" in message
        assert "999" not in message

    def test_secrets_are_compared_and_not_shown(self) -> None:
        with pytest.raises(ConfigError) as caught:
            parse(**{"sasl.password": "canary-1", "sasl_password": "canary-2"})
        assert "canary" not in str(caught.value)
        assert "sasl.password and sasl_password" in str(caught.value)

    def test_none_is_not_given(self) -> None:
        assert parse(**{"group.id": None, "groupId": "g"}).group_id == "g"


class TestScope:
    def test_a_connection_refuses_a_consumers_property(self) -> None:
        with pytest.raises(ConfigError, match=r"fetch\.min\.bytes is a consumer property"):
            parse_connection({"bootstrap.servers": "a:1", "fetch.min.bytes": 1})

    def test_a_consumer_refuses_a_producers_property(self) -> None:
        with pytest.raises(ConfigError, match="is a producer property"):
            parse(acks="all")


@given(st.text(max_size=60).filter(lambda key: fold(key) not in PROPERTIES))
def test_any_unknown_name_is_a_config_error_in_clean_text(key: str) -> None:
    assume(all(fold(key) != alias for row in PROPERTIES.values() for alias in row.aliases))
    with pytest.raises(ConfigError, match="unknown property") as caught:
        lookup(key)
    assert str(caught.value).isprintable()
