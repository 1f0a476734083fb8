"""Single calls: retried until their deadline, completed exactly once."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from multilane.client.admin.topics import partitions_of, topic_metadata_call
from multilane.client.calls import Call, CallManager
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER
from multilane.errors import (
    BrokerError,
    ClientClosed,
    MultilaneError,
    NetworkError,
    OperationTimeout,
    SaslError,
    broker_error,
)
from multilane.types import Node, NodeId, TopicPartition
from multilane.wire.messages import ApiKey
from response_builder import metadata_response


def _manager() -> CallManager:
    return CallManager(RequestBackoff(0.1, 1.0, jitter=0.0))


def _call(deadline: float = 10.0, **more: Any) -> Call:
    return Call(ApiKey.METADATA, lambda version: ("built", version), deadline, Future(), **more)


def test_a_call_is_sent_once_and_its_answer_handed_over():
    manager, call = _manager(), _call()
    manager.add(call)
    (request,) = manager.poll(0.0).requests
    assert (request.api, request.timeout, request.build(3)) == (ApiKey.METADATA, None, ("built", 3))
    assert manager.poll(0.0).requests == ()
    request.on_response("answer", 0.5)
    assert call.future.result(0) == "answer"
    assert manager.poll(0.6).wait == NEVER


def test_what_passes_is_tried_again_with_back_off():
    manager, call = _manager(), _call()
    manager.add(call)
    now = 0.0
    for wait in (0.1, 0.2, 0.4):
        (request,) = manager.poll(now).requests
        request.on_failure(NetworkError("lost"), now)
        poll = manager.poll(now)
        assert poll.requests == ()
        assert poll.wait == pytest.approx(wait)
        now += wait
    (request,) = manager.poll(now).requests
    request.on_response("late", now)
    assert call.future.result(0) == "late"


def test_what_does_not_pass_fails_at_once():
    manager, call = _manager(), _call()
    manager.add(call)
    manager.poll(0.0).requests[0].on_failure(SaslError("no"), 0.0)
    with pytest.raises(SaslError):
        call.future.result(0)


def test_the_deadline_ends_it_and_tells_the_last_reason():
    manager, call = _manager(), _call(deadline=1.0)
    manager.add(call)
    (request,) = manager.poll(0.0).requests
    request.on_failure(NetworkError("lost the broker"), 0.0)
    manager.poll(1.0)
    with pytest.raises(OperationTimeout, match="lost the broker"):
        call.future.result(0)


def test_an_answer_after_the_deadline_is_of_no_consequence():
    manager, call = _manager(), _call(deadline=1.0)
    manager.add(call)
    (request,) = manager.poll(0.0).requests
    manager.poll(1.0)
    request.on_response("too late", 1.1)
    request.on_failure(NetworkError("twice"), 1.2)
    assert isinstance(call.future.exception(0), OperationTimeout)


def test_the_judge_turns_answers_into_errors():
    verdicts: list[MultilaneError | None] = [broker_error(5), broker_error(29)]
    manager, call = _manager(), _call(judge=lambda _response: verdicts.pop(0))
    manager.add(call)
    manager.poll(0.0).requests[0].on_response("leaderless", 0.0)
    assert not call.future.done()
    manager.poll(1.0).requests[0].on_response("forbidden", 1.0)
    with pytest.raises(BrokerError, match="TOPIC_AUTHORIZATION_FAILED"):
        call.future.result(0)


def test_abandoned_calls_are_reported():
    manager, calls = _manager(), [_call(), _call()]
    for call in calls:
        manager.add(call)
    manager.poll(0.0)
    manager.abandon(ClientClosed("bye"))
    assert all(isinstance(c.future.exception(0), ClientClosed) for c in calls)


def test_a_cancelled_future_is_left_alone():
    manager, call = _manager(), _call()
    manager.add(call)
    (request,) = manager.poll(0.0).requests
    call.future.cancel()
    request.on_response("answer", 0.0)
    assert call.future.cancelled()


def test_an_unknown_topic_is_an_answer_and_other_errors_are_retried():
    manager, call = _manager(), topic_metadata_call(("t",), 10.0)
    manager.add(call)
    nodes = [Node(NodeId(1), "one", 1)]
    manager.poll(0.0).requests[0].on_response(metadata_response(12, nodes, {"t": {}}, codes={"t": 5}), 0.0)
    assert not call.future.done()
    manager.poll(1.0).requests[0].on_response(metadata_response(12, nodes, {"t": {}}, codes={"t": 3}), 1.0)
    with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        call.future.result(0)


def test_partitions_come_sorted():
    response = metadata_response(12, [], {"t": {2: (1, 1), 0: (1, 1)}, "u": {7: (1, 1)}})
    assert partitions_of(response, "t") == (TopicPartition("t", 0), TopicPartition("t", 2))
