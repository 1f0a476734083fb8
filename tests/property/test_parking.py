"""Order per key survives retry: two logs, chains and parked keys, with failures and restarts at any point."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lane_world import record_of
from multilane.commit.completion_map import decode, encode
from multilane.commit.ledger import Ledger
from multilane.lanes.chains import Chains
from multilane.lanes.ordering import by_key
from multilane.outcome.next_step import Publish, RetryPolicy, after_failure, follow
from multilane.outcome.parking import Parking

FLOW = RetryPolicy("t", "t.retry", "t.error", retry_count=3, keeps_partition=True)


class Member:
    """What has a main and its retry partition; all it knows beyond the logs comes from its commits."""

    def __init__(self, logs, committed):
        self.logs, self.committed = logs, committed
        self.chains = Chains(by_key(), 3)
        self.parking = Parking("t.retry")
        self.ledgers = {}
        self.fed = {}
        for topic in committed:
            offset, metadata = committed[topic]
            self.ledgers[topic] = Ledger(offset, decode(metadata, offset))
            self.fed[topic] = offset
        done = decode(committed["t.retry"][1], committed["t.retry"][0])
        for record in logs["t.retry"][self.fed["t.retry"] :]:
            if not any(first <= record.offset <= last for first, last in done):
                self.parking.seen(record.key, record.offset)
        self.in_work = []

    def feed(self, topic):
        log, at = self.logs[topic], self.fed[topic]
        if at == len(log):
            return
        record, self.fed[topic] = log[at], at + 1
        ledger = self.ledgers[topic]
        mask = ledger.fresh(np.array([at]))
        if mask is None or mask[0]:
            ledger.hand_out([at])
            if topic == "t.retry":
                self.parking.seen(record.key, at)
            self.chains.put([record], 0.0)
        ledger.advance(at + 1)

    def take(self):
        if self.chains.ready:
            self.in_work.append(self.chains.take_one())

    def settle(self, record):
        self.ledgers[record.topic].settle(record.offset)
        self.parking.settled(record)
        self.chains.release(record, 0.0)

    def store(self, record, copy: Publish):
        log = self.logs[copy.topic]
        copied = record._replace(topic=copy.topic, offset=len(log), headers=copy.headers)
        log.append(copied)
        self.parking.seen(record.key, copied.offset)

    def commit(self):
        for topic, ledger in self.ledgers.items():
            place = ledger.commit_point()
            self.committed[topic] = (place.offset, encode(place.offset, place.runs))


class Story:
    """Members come and go; the logs and what was committed stay."""

    def __init__(self, keys, failing):
        self.logs = {"t": [record_of(key, i) for i, key in enumerate(keys)], "t.retry": [], "t.error": []}
        self.committed = dict.fromkeys(("t", "t.retry"), (0, ""))
        self.failing = failing
        self.attempts: dict[int, int] = {}
        self.succeeded: list[int] = []
        self.begin()

    def begin(self):
        """Of the one before nothing is left that was not committed."""
        self.member = Member(self.logs, self.committed)

    def end(self):
        if not self.member.in_work:
            return
        record = self.member.in_work.pop(0)
        if self.member.parking.must_follow(record):
            self.member.store(record, follow(FLOW, record))
        else:
            again = self.handle(record)
            if again is not None:
                self.member.chains.put_back([again], 0.0)
                return
        self.member.settle(record)

    def handle(self, record):
        number = int(record.value)
        if (number, self.attempts.setdefault(number, 0)) not in self.failing:
            self.succeeded.append(number)
            return None
        self.attempts[number] += 1
        copy = after_failure(FLOW, record, ValueError("no"))
        assert isinstance(copy, Publish)
        if copy.topic == "t.error":
            self.succeeded.append(number)  # out of the way, and in its place
        elif record.topic == "t.retry":
            return record._replace(headers=copy.headers)
        else:
            self.member.store(record, copy)
        return None

    def step(self, number):
        {
            0: lambda: self.member.feed("t"),
            1: lambda: self.member.feed("t.retry"),
            2: self.member.take,
            3: self.end,
            4: self.member.commit,
            5: self.begin,
        }[number]()


@settings(max_examples=300, deadline=None)
@given(
    keys=st.lists(st.sampled_from("aab"), min_size=1, max_size=12),
    failing=st.sets(st.tuples(st.integers(0, 11), st.integers(0, 4))),
    steps=st.lists(st.sampled_from([0, 0, 1, 1, 2, 2, 3, 3, 4, 5]), max_size=200),
)
def test_successes_of_a_key_come_in_the_order_of_its_records(keys, failing, steps):
    story = Story(keys, failing)
    for step in [*steps, *[0, 1, 2, 3] * 400]:
        story.step(step)
    assert set(story.succeeded) == set(range(len(keys))), "lost"
    for key in set(keys):
        firsts = [n for n in dict.fromkeys(story.succeeded) if keys[n] == key]
        assert firsts == sorted(firsts), "a later record of the key succeeded before an earlier one"
    assert not len(story.member.parking)
