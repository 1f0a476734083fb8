"""Kept rows against a plain model: order of each key, one window of a key at a time, nothing lost, content intact."""

from __future__ import annotations

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from batch_builder import LZ4, NONE, Batch, Rec
from multilane.lanes.chains import Chains
from multilane.lanes.ordering import by_key
from multilane.wire.records.arrow import batch_of
from multilane.wire.records.keyed_rows import KeyedRows, TakenRows
from multilane.wire.records.record import Record
from span_reading import read

KEYS = st.one_of(
    st.none(),
    st.sampled_from(
        [b"", b"a", b"b", b"hot", b"exactly 12 b", b"more than twelve bytes 1", b"more than twelve bytes 2"]
    ),
    st.binary(max_size=20),
)
VALUES = st.one_of(st.none(), st.binary(max_size=40), st.integers(1, 3_000).map(lambda size: b"v" * size))
ROWS = st.lists(st.tuples(KEYS, VALUES, st.booleans()), min_size=1, max_size=40)


class KeyedRowsModel(RuleBasedStateMachine):
    """The same records go to `Chains`: what each would give next has to be the same."""

    def __init__(self):
        super().__init__()
        self.rows = KeyedRows("t", 3, 3)
        self.chains = Chains(by_key(), 3)
        self.open: list[tuple[TakenRows, list[Record], list[Record]]] = []
        self.offset = 0

    @rule(
        rows=ROWS,
        codec=st.sampled_from([NONE, NONE, LZ4]),
        cut=st.integers(0, 3),
        times=st.sampled_from([1, 1, 8]),
        how=st.sampled_from(["whole", "copied out", "in pieces", "partly fresh"]),
    )
    def put(self, rows, codec, cut, times, how):
        many = rows * times
        headers = [(b"h", b"1")]
        written = [Rec(i, key, value, i, headers if more else ()) for i, (key, value, more) in enumerate(many)]
        block = read(Batch(written, self.offset, codec), fetch_offset=self.offset).slice(min(cut, len(many) - 1))
        self.offset += len(many)
        records = list(block.records())
        if how == "copied out":
            self.rows.put(block.compact())
        elif how == "in pieces":
            self.rows.put(block.slice(0, 1), is_last=False)
            self.rows.put(block.slice(1))
        elif how == "partly fresh":
            fresh = np.arange(len(block)) % 3 > 0
            self.rows.put(block, fresh)
            records = [record for record, is_fresh in zip(records, fresh, strict=True) if is_fresh]
        else:
            self.rows.put(block)
        self.chains.put(records, 0.0)

    @precondition(lambda self: self.chains.ready)
    @rule(most=st.integers(1, 60), newest=st.booleans())
    def take(self, most, newest):
        taken = self.rows.take(most, newest=newest)
        expected = self.take_chains(most) if newest else self.chains.take(most, 0.0)
        last = {r.key: r.offset for r in expected}
        wanted = [r for r in expected if not newest or r.key is None or last[r.key] == r.offset]
        skipped = {r.offset for r in expected} - {r.offset for r in wanted}
        assert sorted(taken.skipped.column().tolist()) == sorted(skipped)
        assert taken.offsets == [r.offset for r in wanted]
        self.open.append((taken, expected, wanted))

    def take_chains(self, most):
        """As many keys, with up to four times as many records."""
        expected, begun = [], 0
        while self.chains.ready and begun < most and (room := 4 * most - len(expected)):
            expected += self.chains.take(min(room, len(self.chains.ready[0])), 0.0)
            begun += 1
        return expected

    @precondition(lambda self: self.open)
    @rule(data=st.data(), how=st.sampled_from(["records", "columns", "nothing"]))
    def release(self, data, how):
        taken, expected, wanted = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        if how == "records":
            assert list(map(tuple, taken)) == list(map(tuple, wanted))
        elif how == "columns":
            batch = taken.batch()
            batch.validate(full=True)
            assert batch.equals(batch_of(wanted))
        self.rows.release(taken)
        self.chains.release_all(expected, 0.0)

    @invariant()
    def as_many_can_be_taken(self):
        assert self.rows.takeable == self.chains.takeable


TestKeyedRows = KeyedRowsModel.TestCase
TestKeyedRows.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
