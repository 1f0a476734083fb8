"""Sessions that write accounts, and what is read of them: kills, deletions, edits, other groups, clocks."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from uuid import UUID

import pyarrow.parquet as pq
import pytest

from lane_world import block_of
from multilane.audit.begin_bounds import MIN_AHEAD
from multilane.audit.completeness import OpenRange, ReadLog
from multilane.audit.doubts import doubts_within
from multilane.audit.folder import AuditFolder
from multilane.audit.merging import FILES_PER_MERGE
from multilane.audit.reading import read_files
from multilane.audit.record_files import AuditRecordFiles
from multilane.audit.spans import Span
from multilane.clock import ManualClock, SystemClock
from multilane.commit.completion_map import LogIdentity
from multilane.commit.ledger import Ledger
from multilane.lanes.intake import Intake
from multilane.types import TopicPartition
from multilane.wire.records.record import Record

PLACE = TopicPartition("t", 3)
ROOM = 10
AHEAD = MIN_AHEAD
FILES = 15  # of three sessions: where it begins, three with accounts, and that nothing is open any more


class Session:
    """A process that works on one partition."""

    def __init__(self, path: Path, group: str = "g", start: int = 0, clock=None) -> None:
        self.accounts = AuditRecordFiles(str(path), group, clock or SystemClock())
        self.intake = Intake(PLACE, Ledger(start), ROOM)

    async def begin(self) -> Session:
        await self.accounts.open()
        self.tenure = await self.accounts.begin({PLACE: self.intake})
        return self

    async def settle(self, many: int) -> None:
        first = self.intake.ledger.position
        self.intake.accept(block_of(["k"] * many, first))
        while self.intake.has_blocks:
            piece = self.intake.next_piece()
            for offset in piece.offsets.tolist():
                self.accounts.journal.note_done([_record(offset)])
                self.intake.ledger.settle(offset)
        await self.accounts.flush()

    async def end(self) -> None:
        self.accounts.end(self.tenure, ())
        await self.accounts.flush()
        await self.accounts.close()


def _record(offset: int) -> Record:
    return Record(*PLACE, offset, 0, 0, b"k", b"v")


def books(path: Path, group: str = "g"):
    return read_files(AuditFolder(str(path), group), group)


def files_in(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet"), key=lambda file: file.name)


async def test_a_session_that_ended_in_order_leaves_no_doubt(tmp_path):
    session = await Session(tmp_path).begin()
    await session.settle(5)
    await session.end()
    found = books(tmp_path)
    assert found.are_complete
    assert found.doubts == {}
    assert found.since == {PLACE: 0}


async def test_what_a_killed_session_may_have_begun_is_in_doubt(tmp_path):
    session = await Session(tmp_path).begin()
    assert list(books(tmp_path).doubts.values()) == [(OpenRange(PLACE, 0, AHEAD),)]  # before anything is begun
    await session.settle(5)
    session.intake.accept(block_of(["k"] * 4, 5))
    session.intake.next_piece()  # in work, and then it is killed
    found = books(tmp_path)
    assert found.are_complete
    assert list(found.doubts.values()) == [(OpenRange(PLACE, 5, 5 + AHEAD),)]


async def test_nothing_is_begun_beyond_what_a_file_says(tmp_path):
    session = Session(tmp_path)
    await session.accounts.open()
    intake = session.intake
    wanted = []
    session.accounts._flush_soon = lambda: wanted.append(intake.bound)
    session.tenure = await session.accounts.begin({PLACE: intake})
    taken = 0
    intake.accept(block_of(["k"] * 3 * AHEAD))
    while not intake.is_full:
        piece = intake.next_piece()
        taken += len(piece.offsets)
        intake.ledger.settle_all(piece.offsets)
    assert taken == AHEAD
    assert wanted
    session.accounts._is_changed = True
    await session.accounts.flush()
    assert not intake.is_full
    assert intake.bound >= 3 * AHEAD  # twice as much: it was used up before there was a commit


async def test_looks_at_a_bound_that_has_not_moved_allow_no_more(tmp_path):
    """Each look doubled the allowance: a kill left half a million offsets in doubt."""
    session = Session(tmp_path)
    await session.accounts.open()
    intake = session.intake
    session.accounts._flush_soon = lambda: None
    session.tenure = await session.accounts.begin({PLACE: intake})
    intake.accept(block_of(["k"] * 3 * AHEAD))
    while not intake.is_full:
        intake.ledger.settle_all(intake.next_piece().offsets)
    assert all(intake.is_full for _ in range(20))
    session.accounts._is_changed = True
    await session.accounts.flush()
    assert intake.bound == 3 * AHEAD


async def test_calls_that_were_given_up_are_accounts_of_their_own(tmp_path):
    session = await Session(tmp_path).begin()
    await session.settle(2)
    session.accounts.end(session.tenure, [_record(2)])
    await session.accounts.flush()
    rows = [row for file in files_in(tmp_path) for row in pq.ParquetFile(file).read().to_pylist()]
    assert [(row["offset"], row["outcome"]) for row in rows][-1] == (2, "interrupted")
    assert books(tmp_path).doubts == {}


async def three_sessions(path: Path) -> None:
    for start in (0, 6, 12):
        session = await Session(path, start=start).begin()
        for _ in range(3):
            await session.settle(2)
        await session.end()


async def test_the_oldest_third_deleted_is_missed(tmp_path):
    await three_sessions(tmp_path)
    assert books(tmp_path).are_complete
    by_age = sorted((p for p in tmp_path.rglob("*") if p.is_file()), key=lambda p: p.stat().st_mtime_ns)
    for old in by_age[: len(by_age) // 3]:
        old.unlink()
    found = books(tmp_path)
    assert any("are missing" in fault for fault in found.faults)
    assert found.since == {PLACE: 0}


@pytest.mark.parametrize("gone", range(FILES))
async def test_each_file_deleted_is_missed(tmp_path, gone):
    await three_sessions(tmp_path)
    file = files_in(tmp_path)[gone]
    file.unlink()
    found = books(tmp_path)
    assert found.faults or found.doubts  # the very last file says that nothing is open any more


async def test_a_truncated_file_is_named_and_the_others_are_used(tmp_path):
    await three_sessions(tmp_path)
    file = files_in(tmp_path)[1]
    file.write_bytes(file.read_bytes()[:-20])
    found = books(tmp_path)
    assert f"day={file.parent.name[4:]}/{file.name} is damaged" in "; ".join(found.faults)
    assert len(found.usable) == FILES - 1


async def test_a_changed_account_is_noticed(tmp_path):
    await three_sessions(tmp_path)
    file = files_in(tmp_path)[1]
    table = pq.ParquetFile(file).read()
    outcome = ["dead" if text == "done" else text for text in table.column("outcome").to_pylist()]
    changed = table.set_column(3, "outcome", [outcome]).replace_schema_metadata(table.schema.metadata)
    pq.write_table(changed, file)
    assert "was changed after it was written" in "; ".join(books(tmp_path).faults)


async def test_a_file_that_some_tool_wrote_again_does_not_count(tmp_path):
    """Most tools drop a file's metadata; that made it one of an earlier version, which nothing was held against."""
    session = await Session(tmp_path).begin()
    await session.settle(3)  # and is killed
    file = files_in(tmp_path)[-1]
    pq.write_table(pq.ParquetFile(file).read().replace_schema_metadata(None), file)
    found = books(tmp_path)
    assert "was rewritten: its manifest is missing" in "; ".join(found.faults)
    assert found.old == ()
    assert f"{file.parent.name}/{file.name}" not in found.usable


async def test_a_session_that_began_at_the_same_time_is_missed(tmp_path):
    """Neither is there when the other looks first. Whoever is given its partition later names it."""
    later, earlier = Session(tmp_path, start=6), Session(tmp_path)
    await later.accounts.open()
    card = set((tmp_path / "group=g" / "_sessions").iterdir())
    await earlier.begin()
    await earlier.settle(6)  # and is killed
    later.tenure = await later.accounts.begin({PLACE: later.intake})
    await later.settle(3)
    assert books(tmp_path).faults == ()
    for file in {*(tmp_path / "group=g" / "_sessions").iterdir()} - card:
        file.unlink()
    for file in files_in(tmp_path):
        if earlier.accounts._session in file.name:
            file.unlink()
    found = books(tmp_path)
    assert any("are missing" in fault for fault in found.faults)
    assert found.since == {PLACE: 0}


@pytest.mark.parametrize("has_settled", [True, False])
async def test_the_last_file_of_a_killed_member_is_missed_if_an_earlier_one_took_over(tmp_path, has_settled):
    """The survivor had had the partition before: it did not look who was killed there."""
    survivor = await Session(tmp_path).begin()
    await survivor.settle(3)
    survivor.accounts.end(survivor.tenure, ())
    await survivor.accounts.flush()
    killed = await Session(tmp_path, start=3).begin()
    if has_settled:
        await killed.settle(3)
    start = killed.intake.ledger.position
    killed.intake.accept(block_of(["k"] * 4, start))
    killed.intake.next_piece()  # handles these, and then it is killed
    survivor.intake = Intake(PLACE, Ledger(start), ROOM)
    survivor.tenure = await survivor.accounts.begin({PLACE: survivor.intake})
    await survivor.settle(6)
    survivor.accounts.end(survivor.tenure, ())
    await survivor.accounts.flush()  # and it lives on
    found = books(tmp_path)
    assert found.faults == ()
    assert doubts_within(found.doubts, {PLACE: Span(0, 9)})
    max(file for file in files_in(tmp_path) if killed.accounts._session in file.name).unlink()
    assert any("are missing" in fault for fault in books(tmp_path).faults)


@pytest.mark.parametrize("many", [1, 3])
async def test_a_second_look_does_not_forget_the_files_of_the_first(tmp_path, many):
    """They were deleted in between: the card then listed what was left."""
    killed = await Session(tmp_path).begin()
    await killed.settle(3)
    await killed.settle(3)
    survivor = await Session(tmp_path, start=6).begin()
    await survivor.settle(2)
    mine = [file for file in files_in(tmp_path) if killed.accounts._session in file.name]
    for file in mine[-many:]:
        file.unlink()
    faults = books(tmp_path).faults
    assert any("are missing" in fault for fault in faults)
    await survivor.accounts.begin({PLACE: Intake(PLACE, Ledger(8), ROOM)})
    await survivor.accounts.flush()
    assert books(tmp_path).faults == faults


async def test_partitions_that_come_together_are_one_look_at_the_directory(tmp_path, monkeypatch):
    """A member may be given hundreds, of a directory with ten thousands of files."""
    first = await Session(tmp_path).begin()
    await first.end()
    session = Session(tmp_path)
    await session.accounts.open()
    looks = []
    listing = session.accounts._sessions._folder.listing
    monkeypatch.setattr(session.accounts._sessions._folder, "listing", lambda: looks.append(1) or listing())
    for _ in range(5):
        await session.accounts.begin({PLACE: Intake(PLACE, Ledger(3), ROOM)})
    await session.accounts.flush()
    await session.accounts.flush()
    assert len(looks) == 1


@pytest.mark.parametrize("name", ["x.parquet", "elsewhere/x.parquet", "day=2026-01-01/deeper/x.parquet"])
async def test_a_file_where_none_is_written_is_a_fault(tmp_path, name):
    """Spark reads some of these and skips others, whatever the check has read."""
    session = await Session(tmp_path).begin()
    await session.settle(2)
    await session.end()
    copy = tmp_path / "group=g" / name
    copy.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(files_in(tmp_path)[0], copy)
    found = books(tmp_path)
    assert found.faults == (f"{name} is not in the folder of a day",)
    assert name not in found.usable


@pytest.mark.parametrize("folder", ["_old", ".trash", "_temporary/day=2026-01-01"])
async def test_files_that_spark_skips_are_missing(tmp_path, folder):
    session = await Session(tmp_path).begin()
    await session.settle(2)
    await session.end()
    moved = tmp_path / "group=g" / folder
    moved.mkdir(parents=True)
    assert books(tmp_path).faults == ()
    file = files_in(tmp_path)[0]
    file.rename(moved / file.name)
    assert any("missing" in fault for fault in books(tmp_path).faults)


async def test_files_of_another_group_do_not_count(tmp_path):
    session = await Session(tmp_path, "other").begin()
    await session.settle(3)
    await session.end()
    await three_sessions(tmp_path)
    shutil.copytree(tmp_path / "group=other", tmp_path / "group=g", dirs_exist_ok=True)
    found = books(tmp_path)
    assert "belongs to group other" in "; ".join(found.faults)
    assert len(found.usable) == FILES


async def test_a_folder_of_an_earlier_version_is_read_and_reported(tmp_path):
    await three_sessions(tmp_path)
    shutil.rmtree(tmp_path / "group=g" / "_sessions")
    for file in files_in(tmp_path):
        pq.write_table(pq.ParquetFile(file).read().replace_schema_metadata(None), file)
    found = books(tmp_path)
    assert len(found.old) == 3
    assert found.faults == ()
    assert found.since == {}


async def test_merging_keeps_what_files_say(tmp_path):
    session = await Session(tmp_path).begin()
    for _ in range(FILES_PER_MERGE):
        await session.settle(1)
    await session.end()
    [merged] = [file for file in files_in(tmp_path) if "merged" in file.name]
    small = [file for file in files_in(tmp_path) if file != merged]
    assert books(tmp_path).are_complete
    for file in small[:FILES_PER_MERGE]:
        file.unlink()
    assert books(tmp_path).are_complete
    merged.unlink()
    assert not books(tmp_path).are_complete


async def test_files_say_which_log_they_are_of_also_when_they_are_merged(tmp_path):
    topic_id = UUID(int=7)
    session = Session(tmp_path)
    await session.accounts.open()
    session.tenure = await session.accounts.begin({PLACE: session.intake}, {PLACE: topic_id})
    assert books(tmp_path).logs == ()  # nothing was read
    await session.settle(4)
    epoch = session.intake.ledger.end_epoch
    assert books(tmp_path).logs == (ReadLog(PLACE, 4, LogIdentity(epoch, topic_id)),)
    for _ in range(FILES_PER_MERGE):
        await session.settle(1)
    await session.end()
    [merged] = [file for file in files_in(tmp_path) if "merged" in file.name]
    for file in files_in(tmp_path):
        if file != merged and file.name < merged.name:
            file.unlink()
    assert books(tmp_path).logs == (ReadLog(PLACE, 4 + FILES_PER_MERGE, LogIdentity(epoch, topic_id)),)


async def test_a_clock_that_was_set_back_does_not_turn_the_order(tmp_path):
    session = await Session(tmp_path).begin()
    await session.settle(1)
    await session.end()
    clock = ManualClock()  # years ago
    newest = max(os.stat(file).st_mtime for file in files_in(tmp_path))
    assert clock.wall() < newest
    later = await Session(tmp_path, start=1, clock=clock).begin()
    await later.settle(1)
    rows = [row for file in files_in(tmp_path) for row in pq.ParquetFile(file).read().to_pylist()]
    by_offset = {row["offset"]: row["settled_at"] for row in rows if row["outcome"] == "done"}
    assert by_offset[1] > by_offset[0]


async def test_a_card_tells_who_was_there_before(tmp_path):
    await three_sessions(tmp_path)
    cards = sorted((tmp_path / "group=g" / "_sessions").iterdir())
    told = [json.loads(card.read_text()) for card in cards]
    assert [len(card["earlier"]) for card in told] == [0, 1, 2]
    assert [card["accounts"] for card in told] == [7, 7, 7]
