"""The delegate does not sleep after it has failed a request: the managers are polled again first."""

from __future__ import annotations

from multilane.client.net.delegate import ConnectionSetup, NetworkDelegate
from multilane.client.net.directory import Directory
from multilane.client.net.request_state import RequestBackoff
from multilane.client.net.requests import NEVER, UnsentRequest
from multilane.client.net.resolver import Resolver
from multilane.client.net.wakeup import Wakeup
from multilane.clock import SystemClock
from multilane.config.consumer import parse_consumer
from multilane.errors import MultilaneError, NetworkError, OperationTimeout, SaslError, TlsError
from multilane.metrics.observer import NO_OBSERVER
from multilane.types import Node, NodeId
from multilane.wire.messages import ApiKey

BROKER = NodeId(7)


class Eyes:
    """A selector that never waits and records its timeouts."""

    def __init__(self) -> None:
        self.asked: list[float | None] = []

    def select(self, timeout: float | None) -> list[object]:
        self.asked.append(timeout)
        return []


def request_to(node: NodeId, failures: list[MultilaneError]) -> UnsentRequest:
    return UnsentRequest(
        api=ApiKey.FETCH,
        build=lambda _: None,
        on_response=lambda *_: None,
        on_failure=lambda error, _: failures.append(error),
        node=node,
    )


def delegate_with(eyes: Eyes) -> NetworkDelegate:
    config = parse_consumer({"bootstrap.servers": "127.0.0.1:1"}).connection
    wakeup = Wakeup()
    setup = ConnectionSetup(Resolver(lambda: None, wakeup.set, SystemClock().monotonic), None, None)
    delegate = NetworkDelegate(config, setup, wakeup, NO_OBSERVER)
    delegate._selector.close()
    delegate._selector = eyes
    delegate.on_nodes({BROKER: Node(BROKER, "127.0.0.1", 1)}, 0.0)
    wakeup.close()
    return delegate


def test_a_request_that_fails_at_once_ends_the_turn():
    eyes, failures = Eyes(), []
    delegate = delegate_with(eyes)
    delegate.directory.failed(BROKER, NetworkError("gone"), 0.0)
    delegate.add(request_to(BROKER, failures), 0.0)
    delegate.poll(NEVER, lambda: 0.0)
    assert [str(error) for error in failures] == ["broker 7 is unreachable (waiting before the next attempt)"]
    assert eyes.asked == [0.0]
    delegate.poll(NEVER, lambda: 0.0)
    assert eyes.asked == [0.0, None]  # nothing to do: sleep until woken


def test_a_request_that_waited_too_long_ends_the_turn():
    eyes, failures = Eyes(), []
    delegate = delegate_with(eyes)
    delegate.add(request_to(BROKER, failures), 0.0)
    delegate.poll(NEVER, lambda: 31.0)
    assert [type(error) for error in failures] == [OperationTimeout]
    assert eyes.asked == [0.0]


# --- refusals --------------------------------------------------------------------------------------------------------


def interrupted() -> TlsError:
    error = TlsError("closed during the handshake")
    error.retriable, error.fatal = True, False
    return error


def directory() -> Directory:
    return Directory([("a", 1)], RequestBackoff(0.05, 1.0, jitter=0.0), rebootstrap=True)


def test_a_refused_identity_waits_long():
    table = directory()
    assert table.failed(BROKER, SaslError("wrong password"), 0.0)
    assert table.wait(BROKER, 0.0) == 2.0
    assert table.failed(BROKER, SaslError("wrong password"), 10.0)
    assert table.wait(BROKER, 10.0) == 4.0


def test_a_handshake_that_always_breaks_off_is_a_refusal():
    table = directory()
    assert [table.failed(BROKER, interrupted(), 0.0) for _ in range(3)] == [False, False, True]
    assert table.wait(BROKER, 0.0) >= 2.0


def test_a_broker_that_goes_down_is_no_refusal():
    table = directory()
    for error in (interrupted(), interrupted(), NetworkError("refused"), interrupted(), interrupted()):
        assert not table.failed(BROKER, error, 0.0)
    table.succeeded(BROKER)
    assert not table.failed(BROKER, interrupted(), 0.0)
    assert table.wait(BROKER, 0.0) == 0.05
