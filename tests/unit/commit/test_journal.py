"""Notes of the outcomes of records, as columns."""

from __future__ import annotations

from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from lane_world import block_of
from multilane.commit.journal import OUTCOMES, RecordJournal, RecordOutcome, StoredCopy
from multilane.types import TopicPartition
from multilane.wire.records.keyed_rows import KeyedRows
from multilane.wire.records.record import Record

ORDERS, RETRY = TopicPartition("orders", 3), TopicPartition("retry", 3)


def record(offset: int, topic: str = "orders", partition: int = 3) -> Record:
    return Record(topic, partition, offset, 0, 0, b"k", b"v")


def journal() -> RecordJournal:
    """Time advances by one with each note."""
    return RecordJournal(count(100).__next__)


def rows_of(accounts) -> list[tuple]:
    return [
        (accounts.places[place], offset, OUTCOMES[outcome], when, None if copy < 0 else accounts.copies[copy])
        for place, offset, outcome, when, copy in zip(
            accounts.place.tolist(),
            accounts.offset.tolist(),
            accounts.outcome.tolist(),
            accounts.settled_at.tolist(),
            accounts.copy.tolist(),
            strict=True,
        )
    ]


def test_each_kind_of_note_becomes_rows_in_the_order_of_settling():
    notes = journal()
    notes.begin(ORDERS, 7)
    notes.note_done([record(7), record(9)])
    notes.note_skipped([record(8)])
    notes.note_failed(record(10), RecordOutcome.RETRIED, StoredCopy("retry", 3, 40), None)
    notes.note_failed(record(40, "retry"), RecordOutcome.DEAD, None, None)
    assert len(notes) == 6
    assert rows_of(notes.take()) == [
        (ORDERS, 7, RecordOutcome.BEGUN, 100, None),
        (ORDERS, 7, RecordOutcome.DONE, 101, None),
        (ORDERS, 9, RecordOutcome.DONE, 101, None),
        (ORDERS, 8, RecordOutcome.SKIPPED, 102, None),
        (ORDERS, 10, RecordOutcome.RETRIED, 103, StoredCopy("retry", 3, 40)),
        (RETRY, 40, RecordOutcome.DEAD, 104, None),
    ]


def test_what_was_taken_is_not_taken_again():
    notes = journal()
    notes.note_done([record(1)])
    assert len(notes.take()) == 1
    assert len(notes) == 0
    assert len(notes.take()) == 0


def test_a_partition_whose_beginning_is_not_known_has_none():
    notes = journal()
    notes.begin(ORDERS, -1)
    assert len(notes) == 0


def test_records_of_two_topics_that_were_settled_together_are_distinguished():
    notes = journal()
    notes.note_done([record(1), record(5, "retry"), record(2)])
    assert {row[:3] for row in rows_of(notes.take())} == {
        (ORDERS, 1, RecordOutcome.DONE),
        (ORDERS, 2, RecordOutcome.DONE),
        (RETRY, 5, RecordOutcome.DONE),
    }


def test_windows_of_rows_are_noted_with_what_they_skipped():
    kept = KeyedRows("t", 3, 1)
    kept.put(block_of(["a", "b", "a", "c"]))
    taken = kept.take(10, newest=True)
    notes = journal()
    notes.note_skipped_rows(taken)
    notes.note_done(taken)
    noted = rows_of(notes.take())
    assert [row[1:3] for row in noted if row[2] is RecordOutcome.SKIPPED] == [(0, RecordOutcome.SKIPPED)]
    assert sorted(row[1] for row in noted if row[2] is RecordOutcome.DONE) == [1, 2, 3]
    kept.release(taken)
    kept.put(block_of(["z"] * 50, start=10))  # the storage of rows is used again: the notes are copies
    assert sorted(row[1] for row in noted) == [0, 1, 2, 3]


@given(st.lists(st.tuples(st.sampled_from(["done", "skipped"]), st.lists(st.integers(0, 2**60), max_size=5))))
def test_nothing_is_lost_between_notes_and_columns(settled):
    notes = journal()
    for outcome, offsets in settled:
        getattr(notes, f"note_{outcome}")([record(offset) for offset in offsets])
    noted = [(row[2].value, row[1]) for row in rows_of(notes.take())]
    assert noted == [(outcome, offset) for outcome, offsets in settled for offset in offsets]
