"""The files of accounts: whether all are there, and what their writers may have done without an account."""

from __future__ import annotations

import pytest

from multilane.audit.completeness import START, AuditFile, AuditFiles, OpenRange, SessionFile, check_files
from multilane.audit.doubts import doubts_within
from multilane.audit.spans import Span
from multilane.types import TopicPartition

PLACE, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)


def file(session: str, first: int, *rows: int, previous: str | None = None, open_=(), name: str = "") -> AuditFile:
    """Its digests are the numbers of accounts before them."""
    ends = [sum(rows[: n + 1]) + first for n in range(len(rows))]
    before = (START if first == 0 else f"{session}{first}") if previous is None else previous
    entries = tuple((many, f"{session}{end}") for many, end in zip(rows, ends, strict=True))
    return AuditFile(name or f"{session}-{first}-{len(rows)}", session, first, before, entries, tuple(open_))


def faults(files, cards) -> str:
    return "; ".join(check_files(files, cards, {}).faults)


FILES = [file("a", 0, 10), file("a", 10, 5), file("a", 15, 5), file("b", 0, 7)]
SESSIONS = [SessionFile("a", records=20, since={PLACE: 100}), SessionFile("b", {"a": 15}, {PLACE: 100, OTHER: 3})]


def test_whole_books_have_no_faults():
    found = check_files(FILES, SESSIONS, {})
    assert found.are_complete
    assert found.since == {PLACE: 100, OTHER: 3}
    assert found.usable == ("a-0-1", "a-10-1", "a-15-1", "b-0-1")


@pytest.mark.parametrize(
    ("gone", "told"),
    [
        (0, "session a: 10 audit records missing from number 0 on"),
        (1, "session a: 5 audit records missing from number 10 on"),
        (2, "session a: its last 5 audit records missing"),
    ],
)
def test_a_missing_file_is_reported_wherever_it_was(gone, told):
    assert told in faults([one for n, one in enumerate(FILES) if n != gone], SESSIONS)


def test_a_session_that_is_gone_altogether_is_reported_by_a_later_one():
    assert (
        faults(FILES[3:], SESSIONS[1:]) == "session a: session file and audit files that session b listed are missing"
    )
    found = check_files(FILES[3:], SESSIONS[1:], {})
    assert found.since[PLACE] == 100  # and from where on accounts must be there


def test_the_last_files_of_a_killed_session_are_missed_by_whoever_saw_them():
    cards = [SessionFile("a"), SessionFile("b", {"a": 15})]
    assert faults(FILES, cards) == ""
    assert "that session b listed are missing" in faults([FILES[0], FILES[1], FILES[3]], cards)


def test_merged_files_and_their_parts_are_the_same_accounts():
    merged = file("a", 0, 10, 5, 5)
    assert faults([merged, *FILES], SESSIONS) == ""
    assert faults([merged, FILES[3]], SESSIONS) == ""


def test_a_file_that_does_not_follow_is_reported():
    changed = file("a", 10, 5, previous="another", name="changed")
    assert "changed does not continue the file before it" in faults([FILES[0], changed, *FILES[2:]], SESSIONS)


def test_accounts_of_a_session_nobody_knows_are_reported():
    assert faults(FILES, SESSIONS[1:]) == "session a has audit records but no session file"


def test_files_of_an_earlier_version_are_used_and_reported():
    found = check_files([FILES[3]], [SessionFile("b")], {"day=1/old-0.parquet": "old"})
    assert found.old == ("old",)
    assert found.faults == ()
    assert not found.are_complete
    assert "day=1/old-0.parquet" in found.usable


def test_a_session_that_a_card_lists_is_of_no_earlier_version():
    """Its files were rewritten without manifests and its card deleted: it passed as one that had neither."""
    found = check_files([FILES[3]], [SessionFile("b", {"a": 12})], {"day=1/a-000000000000.parquet": "a"})
    assert found.old == ()
    assert found.usable == (FILES[3].name,)
    assert "day=1/a-000000000000.parquet was rewritten: its manifest is missing" in found.faults


def test_what_a_session_had_open_in_its_last_file_is_in_doubt():
    first = file("a", 0, 10, open_=[OpenRange(PLACE, 0, 50)])
    last = file("a", 10, 5, open_=[OpenRange(PLACE, 12, 80, ((20, 29),))])
    closed = file("b", 0, 7)
    found = check_files([last, closed, first], [SessionFile("a"), SessionFile("b")], {})
    assert found.doubts == {"a": (OpenRange(PLACE, 12, 80, ((20, 29),)),)}
    assert doubts_within(found.doubts, {PLACE: Span(15, 60)}) == {PLACE: ((15, 19), (30, 59))}
    assert doubts_within(found.doubts, {PLACE: Span(0, 12)}) == {}
    assert doubts_within(found.doubts, {OTHER: Span(0, 100)}) == {}


def test_a_file_without_accounts_that_came_later_counts():
    opened = file("a", 10, open_=[OpenRange(PLACE, 9, 99)])
    assert check_files([file("a", 0, 10), opened], [SessionFile("a")], {}).doubts == {"a": (OpenRange(PLACE, 9, 99),)}


def test_of_two_files_without_accounts_the_one_of_the_later_day_counts():
    """A session that has settled nothing yet is given another partition after midnight, and is killed."""
    before = file("a", 0, open_=[OpenRange(PLACE, 0, 256)], name="day=2026-01-01/a-000000000000.parquet")
    later = file(
        "a", 0, open_=[OpenRange(PLACE, 0, 256), OpenRange(OTHER, 0, 256)], name="day=2026-01-02/a-000000000000.parquet"
    )
    for files in ([before, later], [later, before]):
        assert check_files(files, [SessionFile("a")], {}).doubts == {"a": later.open}


def test_too_many_ranges_become_fewer_that_hold_them_all():
    settled = tuple((n, n) for n in range(1, 2_000, 2))
    found = doubts_within({"a": (OpenRange(PLACE, 0, 2_000, settled),)}, {PLACE: Span(0, 2_000)})[PLACE]
    assert len(found) == 16
    assert all(any(first <= n <= last for first, last in found) for n in range(0, 2_000, 2))


def test_nothing_is_whole_when_it_could_not_be_read():
    assert not AuditFiles(faults=("no",), cannot_check=True).are_complete
