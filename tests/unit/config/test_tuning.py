"""Advice names the rule, the setting found and the remedy; good settings get none."""

from __future__ import annotations

import pytest

from multilane.client.group.broker_limits import BrokerLimits
from multilane.config.consumer import parse_consumer
from multilane.config.tuning import SessionLimits, of_assignment, of_handling, of_session, of_settings
from multilane.errors import broker_error
from multilane.types import NodeId
from multilane.wire.messages import ApiKey, response_type


def group(**properties):
    return parse_consumer({"bootstrap.servers": "h:1", "group.id": "g", **properties}).group


def classic(heartbeat: int, session: int):
    return group(**{"heartbeat.interval.ms": heartbeat, "session.timeout.ms": session})


@pytest.mark.parametrize(("heartbeat", "session"), [(1_000, 3_000), (3_000, 45_000), (2_000, 6_000)])
def test_heartbeats_that_fit_thrice(heartbeat, session):
    assert of_settings(classic(heartbeat, session)) == ()


def test_heartbeats_too_far_apart():
    (advice,) = of_settings(classic(4_000, 10_000))
    assert "heartbeat.interval.ms is 4000, session.timeout.ms 10000" in str(advice)
    assert "at most a third" in str(advice)
    assert "3333 or less" in str(advice)


def test_no_advice_on_timers_that_the_broker_sets():
    assert of_settings(group(**{"group.protocol": "consumer"})) == ()
    assert of_settings(group()) == ()


def test_sessions_that_the_broker_will_refuse():
    limits = SessionLimits(6.0, 300.0)
    assert of_session(classic(1_000, 6_000), limits) == ()
    for session in (5_000, 301_000):
        (advice,) = of_session(classic(1_000, session), limits)
        assert f"is {session}, the broker allows 6000 to 300000" in str(advice)
        assert "refuses this member" in str(advice)


def test_handlers_that_take_too_long():
    config = group(**{"max.poll.interval.ms": 10_000})
    assert of_handling(config, 5.0) == ()
    (advice,) = of_handling(config, 5.1)
    assert "took 5.1 s between two polls, max.poll.interval.ms is 10000" in str(advice)
    assert "max.poll.records" in str(advice)


def test_more_members_than_partitions():
    assert of_assignment(1, 3) == ()
    assert of_assignment(0, 0) == ()
    (advice,) = of_assignment(0, 3)
    assert "assigned none of 3 partitions" in str(advice)


# --- the broker's limits ---------------------------------------------------------------------------------------------


class Coordinators:
    node = None

    def of(self, _group):
        return self.node

    def forget(self, _group, _node):
        raise AssertionError("nobody forgets for the sake of advice")


def answer(version: int, values: dict[str, str], code: int = 0):
    kind = response_type_of(version)
    parts = __import__(kind.__module__, fromlist=["*"])
    from datetime import timedelta

    from kio.schema.errors import ErrorCode
    from kio.static.primitive import i32Timedelta

    configs = tuple(
        parts.DescribeConfigsResourceResult(
            name=name, value=value, read_only=True, config_source=5, is_sensitive=False, synonyms=(), config_type=5,
            documentation=None,
        )
        for name, value in values.items()
    )  # fmt: skip
    result = parts.DescribeConfigsResult(
        error_code=ErrorCode(code), error_message=None, resource_type=4, resource_name="1", configs=configs
    )
    return kind(throttle_time=i32Timedelta.parse(timedelta(0)), results=(result,))


def response_type_of(version: int):
    from multilane.wire.messages import request_type

    return response_type(request_type(ApiKey.DESCRIBE_CONFIGS, version))


@pytest.fixture
def scene():
    coordinators, received = Coordinators(), []
    return coordinators, received, BrokerLimits("g", coordinators, received.append)


LIMITS = {"group.min.session.timeout.ms": "6000", "group.max.session.timeout.ms": "1800000"}


def test_asked_once_when_the_coordinator_is_known(scene):
    coordinators, received, limits = scene
    assert limits.poll(0.0).requests == ()
    coordinators.node = NodeId(1)
    (request,) = limits.poll(0.0).requests
    assert request.node == 1
    for version in (1, 4):
        (resource,) = request.build(version).resources
        assert (resource.resource_type, resource.resource_name) == (4, "1")
        assert set(resource.configuration_keys) == set(LIMITS)
    assert limits.poll(0.0).requests == ()
    request.on_response(answer(4, LIMITS), 0.0)
    assert received == [SessionLimits(6.0, 1800.0)]


@pytest.mark.parametrize("values", [{}, {"group.min.session.timeout.ms": "6000"}, LIMITS | {next(iter(LIMITS)): "x"}])
def test_no_advice_without_the_broker_limits(scene, values):
    coordinators, received, limits = scene
    coordinators.node = NodeId(1)
    (request,) = limits.poll(0.0).requests
    request.on_response(answer(4, values), 0.0)
    assert received == []


def test_no_advice_without_permission_to_read_settings(scene):
    coordinators, received, limits = scene
    coordinators.node = NodeId(1)
    (request,) = limits.poll(0.0).requests
    request.on_response(answer(4, LIMITS, code=31), 0.0)
    request.on_failure(broker_error(31), 0.0)
    assert received == []
