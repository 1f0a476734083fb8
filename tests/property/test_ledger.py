"""The ledger against a model of plain sets, and the completion map against every text."""

from __future__ import annotations

import base64

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from multilane.commit.completion_map import NOTHING, LogIdentity, decode, encode, read
from multilane.commit.ledger import Ledger
from multilane.commit.open_offsets import OpenArray
from multilane.commit.sections import checksum, number


class LedgerModel(RuleBasedStateMachine):
    """A log with holes, read in pieces, settled in any order, and taken over by a successor from what was committed."""

    in_bulk = False

    def __init__(self):
        super().__init__()
        self.log: list[int] = []
        self.read = 0  # how many of the log
        self.done: set[int] = set()
        self.handed: set[int] = set()
        self.ledger = Ledger(0, in_bulk=self.in_bulk)
        self.end = 0

    @rule(gaps=st.lists(st.integers(1, 4), min_size=1, max_size=8), trailing=st.integers(0, 2))
    def append_and_read(self, gaps, trailing):
        for gap in gaps:
            self.end += gap
            self.log.append(self.end - 1)
        self.end += trailing
        piece = np.array(self.log[self.read :])
        self.read = len(self.log)
        mask = self.ledger.fresh(piece)
        fresh = piece if mask is None else piece[mask]
        assert {int(o) for o in fresh} == {int(o) for o in piece} - self.done
        self.ledger.hand_out(fresh.tolist())
        self.handed |= set(fresh.tolist())
        self.ledger.advance(max(self.end, self.ledger.position))

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def settle(self, data):
        offset = data.draw(st.sampled_from(sorted(self.handed)))
        self.ledger.settle(offset)
        self.handed.discard(offset)
        self.done.add(offset)

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def settle_many(self, data):
        offsets = data.draw(st.lists(st.sampled_from(sorted(self.handed)), unique=True))
        self.ledger.settle_all(offsets)
        self.handed -= set(offsets)
        self.done |= set(offsets)

    @precondition(lambda self: self.done)
    @rule(data=st.data(), one=st.booleans())
    def settle_twice(self, data, one):
        """Refused, and nothing is changed by it."""
        again = data.draw(st.sampled_from(sorted(self.done)))
        before = self.ledger.unsettled
        with pytest.raises(KeyError):
            self.ledger.settle(again) if one else self.ledger.settle_all([again])
        assert self.ledger.unsettled == before

    @rule()
    def take_over(self):
        place = self.ledger.commit_point()
        runs = decode(encode(place.offset, place.runs), place.offset)
        self.ledger = Ledger(place.offset, runs, in_bulk=self.in_bulk)
        self.done.discard(place.offset)  # the one offset that a map cannot speak of
        self.handed = set()
        self.read = len([o for o in self.log if o < place.offset])
        self.end = max(self.end, place.offset)

    @invariant()
    def the_law_holds(self):
        place = self.ledger.commit_point()
        assert all(o >= place.offset for o in self.handed)
        settled = {o for first, last in place.runs for o in range(first, last + 1)}
        assert not settled & self.handed
        assert all(o in self.done for o in self.log if o < place.offset or o in settled)
        # and nothing that is settled is forgotten
        known = {o for o in self.log if o < place.offset} | settled
        assert self.done - {place.offset} <= known
        assert place.offset <= self.ledger.position
        assert place.runs == tuple(sorted(place.runs))
        assert all(first > place.offset for first, _ in place.runs)
        assert self.ledger.unsettled == tuple(sorted(self.handed))
        assert len(self.ledger) == len(self.handed)
        assert all(o in self.ledger for o in self.handed)
        assert not any(o in self.ledger for o in self.done)


class InBulk(LedgerModel):
    in_bulk = True

    def __init__(self):
        OpenArray.first_room = 4  # so that it moves often
        super().__init__()

    def teardown(self):
        OpenArray.first_room = 1024

    @precondition(lambda self: self.handed)
    @rule(data=st.data())
    def settle_some_of_which_one_is_wrong(self, data):
        """Refused, and nothing is changed by it."""
        good = data.draw(st.lists(st.sampled_from(sorted(self.handed)), unique=True, min_size=1))
        wrong = data.draw(st.sampled_from([*sorted(self.done), good[0], self.end + 10, -1]))
        with pytest.raises(KeyError, match=str(wrong)):
            self.ledger.settle_all([*good, wrong])
        assert self.ledger.unsettled == tuple(sorted(self.handed))


TestLedger = LedgerModel.TestCase
TestLedgerInBulk = InBulk.TestCase
TestLedger.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestLedgerInBulk.settings = TestLedger.settings


@given(st.integers(0, 2**62), st.lists(st.tuples(st.integers(1, 2**20), st.integers(1, 2**20)), max_size=3000))
def test_the_map_comes_back_whole_or_cut_at_the_far_end(frontier, distances):
    runs, before = [], frontier
    for gap, length in distances:
        runs.append((before + gap, before + gap + length - 1))
        before += gap + length
    text = encode(frontier, runs)
    kept = decode(text, frontier)
    assert len(text.encode()) <= 4096
    assert kept == tuple(runs[: len(kept)])
    assert len(kept) == len(runs) or len(text) > 4000


@given(st.text(max_size=200), st.integers(-5, 2**63))
def test_any_text_is_harmless(text, frontier):
    assert decode(text, frontier) == ()


@given(st.data())
def test_a_changed_text_says_nothing(data):
    """But for the bits that base64 pads with, which mean nothing."""
    runs = ((102, 110), (200, 5000))
    text = encode(100, runs)
    at = data.draw(st.integers(0, len(text) - 1))
    other = text[:at] + data.draw(st.characters(codec="ascii")) + text[at + 1 :]
    assert decode(other, 100) in {(), runs}
    if at < len("multilane/1;r=") and other != text:
        assert decode(other, 100) == ()


@given(
    st.integers(0, 2**62),
    st.lists(st.integers(0, 2**70), max_size=40),
    st.one_of(st.none(), st.tuples(st.integers(0, 2**40), st.binary(max_size=20))),
)
def test_a_forged_text_with_sound_checksums_says_nothing_or_runs_in_order(frontier, numbers, log):
    """Huge, overlapping, unsorted and empty runs cannot be written in a way that is read."""
    content = b"".join(map(number, numbers))
    text = "multilane/1;r=" + base64.b64encode(checksum(frontier, content) + content).decode()
    if log is not None:
        bound = number(log[0]) + log[1]
        text += ";l=" + base64.b64encode(checksum(frontier, bound, content) + bound).decode()
    told = read(text, frontier)
    before = frontier
    for first, last in told.runs:
        assert before < first <= last < 2**63
        before = last + 1
    if told != NOTHING and log is not None:
        assert told.log is not None
        assert 0 <= told.log.leader_epoch < 2**31
    if told.runs:
        assert encode(frontier, told.runs, told.log) == text


@given(st.integers(0, 2**31 - 1), st.uuids() | st.none(), st.data())
def test_a_changed_log_voids_the_map(epoch, topic_id, data):
    mark = LogIdentity(epoch, topic_id if topic_id is None or topic_id.int else None)
    text = encode(100, ((102, 110),), mark)
    at = data.draw(st.integers(text.index(";l=") + 3, len(text) - 1))
    other = text[:at] + data.draw(st.characters(codec="ascii")) + text[at + 1 :]
    assert read(other, 100) in {NOTHING, read(text, 100)}
