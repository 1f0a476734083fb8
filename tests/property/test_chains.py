"""Chains against a plain model: order of each key, one of a key at a time, nothing lost, takeable is true."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lane_world import record_of
from multilane.lanes.chains import Chains
from multilane.lanes.ordering import by_key

KEYS = st.sampled_from([None, "a", "b", "c", "hot"])


class ChainsModel(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.due: dict[int, float] = {}
        self.chains = Chains(by_key(), 3, lambda record: self.due[record.offset])
        self.waiting: dict[object, list[int]] = {}
        self.in_work: dict[object, list] = {}
        self.offset = 0

    def _key(self, record):
        return record.key if record.key is not None else record.offset

    @rule(keys=st.lists(st.tuples(KEYS, st.sampled_from([0.0, 0.0, 0.0, 5.0])), min_size=1, max_size=6))
    def put(self, keys):
        records = []
        for key, delay in keys:
            record = record_of(key, self.offset)
            self.due[self.offset] = self.now + delay
            self.waiting.setdefault(self._key(record), []).append(self.offset)
            self.offset += 1
            records.append(record)
        self.chains.put(records, self.now)

    @rule(seconds=st.sampled_from([1.0, 3.0, 10.0]))
    def time_passes(self, seconds):
        self.now += seconds
        due = self.chains.wake(self.now)
        assert due is None or due > self.now

    def _taken(self, records):
        keys = []
        for record in records:
            key = self._key(record)
            assert self.waiting[key].pop(0) == record.offset, "out of order"
            assert key not in self.in_work or key in keys, "two of a key at once"
            assert self.due[record.offset] <= self.now, "not due"
            if key not in keys:
                keys.append(key)
                self.in_work[key] = []
            self.in_work[key].append(record)
            if not self.waiting[key]:
                del self.waiting[key]

    @precondition(lambda self: self.chains.ready)
    @rule()
    def take_one(self):
        self._taken([self.chains.take_one()])

    @precondition(lambda self: self.chains.ready)
    @rule(most=st.integers(1, 5))
    def take(self, most):
        records = self.chains.take(most, self.now)
        assert 0 < len(records) <= most
        self._taken(records)

    @precondition(lambda self: self.in_work)
    @rule(data=st.data(), together=st.booleans())
    def release(self, data, together):
        keys = sorted(self.in_work, key=str)
        chosen = keys if together else [data.draw(st.sampled_from(keys))]
        records = [record for key in chosen for record in self.in_work.pop(key)]
        if together:
            self.chains.release_all(records, self.now)
        else:
            self.chains.release(records[0], self.now)

    @invariant()
    def nothing_is_lost(self):
        assert len(self.chains) == sum(map(len, self.waiting.values()))

    @invariant()
    def what_could_be_taken_is_ready(self):
        self.chains.wake(self.now)
        startable = {
            k for k, offsets in self.waiting.items() if k not in self.in_work and self.due[offsets[0]] <= self.now
        }
        ready = {self._key(chain[0]) for chain in self.chains.ready}
        assert ready == startable
        assert self.chains.takeable == sum(len(self.waiting[key]) for key in ready)


TestChains = ChainsModel.TestCase
TestChains.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
