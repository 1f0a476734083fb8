"""Which messages are handled, and in which order."""

from __future__ import annotations

import threading

import pytest

from multilane.clock import SystemClock
from multilane.engines.channel.channel import connect
from multilane.engines.channel.inbox import DriverInbox
from multilane.errors import ChannelLost

PATIENCE = 20.0


class Driver:
    """Accepts every connection as the task that it claims to be."""

    def __init__(self):
        self.inbox = DriverInbox("task", SystemClock())
        self.address = self.inbox.open("127.0.0.1", "127.0.0.1", 2, self)
        self.events = []

    def on_message(self, number, channel, message):
        if message["kind"] == "hello":
            self.inbox.connect(number, channel)
        self.events.append((message["kind"], number, self.inbox.is_connected(number, channel)))

    def on_disconnect(self, number):
        self.events.append(("disconnected", number))

    def connect(self, token=None):
        return connect(self.address, token or self.inbox.token)

    def turn_until(self, count):
        clock = SystemClock()
        until = clock.monotonic() + PATIENCE
        while len(self.events) < count and clock.monotonic() < until:
            self.inbox.handle_next(until)
        return self.events


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    driver.inbox.close()


def test_a_task_connects_gets_an_answer_and_disconnects(driver):
    channel = driver.connect()
    channel.send("hello", number=1)
    driver.turn_until(1)
    driver.inbox.send(1, "work", share=[3])
    assert list(driver.inbox) == [1]
    assert channel.receive() == {"kind": "work", "share": [3]}
    channel.close()
    assert driver.turn_until(2) == [("hello", 1, True), ("disconnected", 1)]
    assert not driver.inbox


def test_a_second_connection_replaces_the_first_without_a_disconnect(driver):
    first, second = driver.connect(), driver.connect()
    first.send("hello", number=0)
    driver.turn_until(1)
    second.send("hello", number=0)
    driver.turn_until(2)
    assert first.receive() is None
    second.send("told", number=0)
    driver.turn_until(3)
    second.close()
    assert driver.turn_until(4) == [("hello", 0, True), ("hello", 0, True), ("told", 0, True), ("disconnected", 0)]
    first.close()


@pytest.mark.parametrize("number", [2, -1, "0", None])
def test_a_connection_with_an_unknown_number_is_closed(driver, number, caplog):
    channel = driver.connect()
    channel.send("hello", number=number)
    assert channel.receive() is None
    assert driver.events == []
    assert f"closing a connection of unknown task {number!r}" in caplog.text
    channel.close()


def test_a_caller_without_the_token_is_rejected(driver):
    with pytest.raises(ChannelLost):
        driver.connect("another")
    assert driver.events == []


def test_a_send_to_a_task_that_is_not_connected_is_ignored(driver):
    driver.inbox.send(1, "end")
    driver.inbox.disconnect(1)
    assert not driver.inbox


def test_events_of_any_thread_are_handled_by_the_one_that_turns(driver):
    seen = []
    putting = threading.Thread(target=driver.inbox.put, args=(lambda: seen.append(threading.current_thread()),))
    putting.start()
    putting.join()
    driver.inbox.handle_next(SystemClock().monotonic() + PATIENCE)
    assert seen == [threading.current_thread()]


def test_drain_waits_for_the_last_messages_of_connected_tasks(driver):
    channel = driver.connect()
    channel.send("hello", number=0)
    driver.turn_until(1)
    channel.send("over", number=0)
    channel.close()
    driver.inbox.drain()
    assert driver.events[1:] == [("over", 0, True), ("disconnected", 0)]
