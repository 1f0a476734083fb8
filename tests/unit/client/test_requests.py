"""Several managers that are polled as one."""

from __future__ import annotations

from multilane.client.net.requests import NEVER, NOTHING, Poll, UnsentRequest, poll_all
from multilane.wire.messages import ApiKey


class _Manager:
    def __init__(self, poll: Poll) -> None:
        self.answer = poll
        self.polled: list[float] = []

    def poll(self, now: float) -> Poll:
        self.polled.append(now)
        return self.answer


def _request() -> UnsentRequest:
    return UnsentRequest(ApiKey.METADATA, lambda _: None, lambda _, now: None, lambda _, now: None)


def test_the_requests_of_all_in_their_order_and_the_earliest_of_their_times():
    first, second, third = _request(), _request(), _request()
    managers = [_Manager(Poll((first, second), 3.0)), _Manager(NOTHING), _Manager(Poll((third,), 2.0))]
    assert poll_all(managers, 7.0) == Poll((first, second, third), 2.0)
    assert [manager.polled for manager in managers] == [[7.0]] * 3


def test_without_managers_nothing_is_due():
    assert poll_all((), 7.0) == Poll((), NEVER)
