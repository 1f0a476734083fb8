"""Who is heard, who is not any more, and in which order."""

from __future__ import annotations

import threading

import pytest

from multilane.clock import SystemClock
from multilane.engines.channel.channel import call
from multilane.engines.channel.inbox import DriverInbox
from multilane.errors import LineLost

PATIENCE = 20.0


class Driver:
    """Takes every caller for the task it says it is."""

    def __init__(self):
        self.lease_table = DriverInbox("task", SystemClock())
        self.address = self.lease_table.open("127.0.0.1", "127.0.0.1", 2, self)
        self.heard = []

    def on_message(self, number, line, message):
        if message["kind"] == "hello":
            self.lease_table.connect(number, line)
        self.heard.append((message["kind"], number, self.lease_table.is_connected(number, line)))

    def on_unheard(self, number):
        self.heard.append(("unheard", number))

    def call(self, token=None):
        return call(self.address, token or self.lease_table.token)

    def turn_until(self, count):
        clock = SystemClock()
        until = clock.monotonic() + PATIENCE
        while len(self.heard) < count and clock.monotonic() < until:
            self.lease_table.turn(until)
        return self.heard


@pytest.fixture
def driver():
    driver = Driver()
    yield driver
    driver.lease_table.close()


def test_a_task_is_heard_answered_and_missed(driver):
    line = driver.call()
    line.send("hello", number=1)
    driver.turn_until(1)
    driver.lease_table.say(1, "work", share=[3])
    assert list(driver.lease_table) == [1]
    assert line.receive() == {"kind": "work", "share": [3]}
    line.close()
    assert driver.turn_until(2) == [("hello", 1, True), ("unheard", 1)]
    assert not driver.lease_table


def test_who_takes_the_place_of_another_ends_its_line_and_is_not_missed_for_it(driver):
    first, second = driver.call(), driver.call()
    first.send("hello", number=0)
    driver.turn_until(1)
    second.send("hello", number=0)
    driver.turn_until(2)
    assert first.receive() is None
    second.send("told", number=0)
    driver.turn_until(3)
    second.close()
    assert driver.turn_until(4) == [("hello", 0, True), ("hello", 0, True), ("told", 0, True), ("unheard", 0)]
    first.close()


@pytest.mark.parametrize("number", [2, -1, "0", None])
def test_who_has_no_number_of_this_run_is_not_heard(driver, number, caplog):
    line = driver.call()
    line.send("hello", number=number)
    assert line.receive() is None
    assert driver.heard == []
    assert f"a task that does not exist calls: {number!r}" in caplog.text
    line.close()


def test_who_does_not_know_the_token_is_turned_away(driver):
    with pytest.raises(LineLost):
        driver.call("another")
    assert driver.heard == []


def test_nobody_there_is_no_reason_to_fail(driver):
    driver.lease_table.say(1, "end")
    driver.lease_table.hang_up(1)
    assert not driver.lease_table


def test_events_of_any_thread_are_handled_by_the_one_that_turns(driver):
    seen = []
    putting = threading.Thread(target=driver.lease_table.put, args=(lambda: seen.append(threading.current_thread()),))
    putting.start()
    putting.join()
    driver.lease_table.turn(SystemClock().monotonic() + PATIENCE)
    assert seen == [threading.current_thread()]


def test_last_words_are_waited_for_as_long_as_somebody_is_there(driver):
    line = driver.call()
    line.send("hello", number=0)
    driver.turn_until(1)
    line.send("over", number=0)
    line.close()
    driver.lease_table.hear_out()
    assert driver.heard[1:] == [("over", 0, True), ("unheard", 0)]
