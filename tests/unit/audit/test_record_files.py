"""Accounts in Parquet files: whole or not at all, and nothing is said to be written that is not."""

from __future__ import annotations

import asyncio
import errno
import os
import shutil
import stat
from contextlib import nullcontext
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from multilane.audit import record_files
from multilane.audit.folder import AuditFolder, folder_name
from multilane.audit.record_files import AuditRecordFiles
from multilane.clock import ManualClock
from multilane.commit.journal import RecordOutcome, StoredCopy
from multilane.errors import AuditNotWritten
from multilane.types import TopicPartition
from multilane.wire.records.record import Record


def record(offset: int) -> Record:
    return Record("orders", 2, offset, 0, 0, b"k", b"v")


def files_in(path: Path) -> list[Path]:
    return sorted(path.rglob("*.parquet"))


def rows_in(path: Path) -> list[dict]:
    return [row for file in files_in(path) for row in pq.ParquetFile(file).read().to_pylist()]


async def test_what_was_noted_is_in_a_file_after_a_flush(tmp_path):
    accounts = AuditRecordFiles(str(tmp_path), "shop/orders", ManualClock())
    await accounts.open()
    accounts.journal.begin(TopicPartition("orders", 2), 5)
    accounts.journal.note_done([record(5), record(6)])
    accounts.journal.note_failed(record(7), RecordOutcome.RETRIED, StoredCopy("retry", 2, 90), None)
    accounts.journal.note_failed(record(8), RecordOutcome.DEAD, StoredCopy("error", 0, -1), None)
    await accounts.flush()
    [file] = files_in(tmp_path)
    assert file.parent == tmp_path / "group=shop%2Forders" / "day=2023-11-14"
    rows = rows_in(tmp_path)
    assert [(r["topic"], r["partition"], r["offset"], r["outcome"]) for r in rows] == [
        ("orders", 2, 5, "begun"),
        ("orders", 2, 5, "done"),
        ("orders", 2, 6, "done"),
        ("orders", 2, 7, "retried"),
        ("orders", 2, 8, "dead"),
    ]
    assert [(r["copy_topic"], r["copy_partition"], r["copy_offset"]) for r in rows] == [
        (None, None, None),
        (None, None, None),
        (None, None, None),
        ("retry", 2, 90),
        ("error", None, None),
    ]
    assert [r["sequence"] for r in rows] == [0, 1, 2, 3, 4]
    assert len({r["session"] for r in rows}) == 1
    assert rows[0]["settled_at"].timestamp() == ManualClock().wall()


async def test_a_flush_without_notes_makes_no_file_and_the_next_goes_on_counting(tmp_path):
    accounts = AuditRecordFiles(str(tmp_path), "g", ManualClock())
    await accounts.open()
    await accounts.flush()
    assert files_in(tmp_path) == []
    for offset in range(3):
        accounts.journal.note_done([record(offset)])
        await accounts.flush()
    assert [(r["offset"], r["sequence"]) for r in rows_in(tmp_path)] == [(0, 0), (1, 1), (2, 2)]


async def test_a_clock_that_is_set_back_changes_no_order(tmp_path):
    clock = ManualClock()
    accounts = AuditRecordFiles(str(tmp_path), "g", clock)
    accounts.journal.note_done([record(0)])
    clock.advance(1.0)
    clock._wall -= 3_600
    accounts.journal.note_done([record(1)])
    await accounts.flush()
    first, second = rows_in(tmp_path)
    assert (second["settled_at"] - first["settled_at"]).total_seconds() == 1.0


async def test_a_directory_that_cannot_be_written_is_reported_at_once(tmp_path):
    taken = tmp_path / "a-file"
    taken.touch()
    with pytest.raises(AuditNotWritten, match=r"cannot write to .*a-file"):
        await AuditRecordFiles(str(taken), "g", ManualClock()).open()


async def test_what_could_not_be_written_is_written_with_the_next_flush(tmp_path):
    clock, folder = ManualClock(), tmp_path / "group=g"
    accounts = AuditRecordFiles(str(tmp_path), "g", clock)
    await accounts.open()
    shutil.rmtree(folder)
    folder.touch()  # a file in its place
    accounts.journal.note_done([record(0)])
    with pytest.raises(AuditNotWritten) as first:
        await accounts.flush()
    clock.advance(29.0)
    accounts.journal.note_done([record(1)])
    with pytest.raises(AuditNotWritten) as second:
        await accounts.flush()
    assert (first.value.retriable, second.value.retriable) == (True, True)
    folder.unlink()
    await accounts.flush()
    assert [r["offset"] for r in rows_in(tmp_path)] == [0, 1]
    assert [p for p in tmp_path.rglob(".*") if p.is_file()] == []


async def test_writing_that_fails_for_long_is_not_tried_for_ever(tmp_path):
    clock, folder = ManualClock(), tmp_path / "group=g"
    accounts = AuditRecordFiles(str(tmp_path), "g", clock)
    folder.touch()
    accounts.journal.note_done([record(0)])
    with pytest.raises(AuditNotWritten):
        await accounts.flush()
    clock.advance(31.0)
    with pytest.raises(AuditNotWritten, match="Nothing is committed until they are written") as told:
        await accounts.flush()
    assert not told.value.retriable


async def test_a_flush_that_is_cancelled_leaves_its_file_whole(tmp_path, monkeypatch):
    accounts = AuditRecordFiles(str(tmp_path), "g", ManualClock())
    writing, go_on = asyncio.Event(), asyncio.Event()
    loop, write = asyncio.get_running_loop(), accounts._folder.write

    def slowly(name, table):
        loop.call_soon_threadsafe(writing.set)
        asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(30)
        write(name, table)

    monkeypatch.setattr(accounts._folder, "write", slowly)
    accounts.journal.note_done([record(0)])
    flushing = asyncio.create_task(accounts.flush())
    await writing.wait()
    flushing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    go_on.set()
    accounts.journal.note_done([record(1)])
    await accounts.flush()
    assert [(r["offset"], r["sequence"]) for r in rows_in(tmp_path)] == [(0, 0), (1, 1)]


@pytest.mark.parametrize(
    ("group", "name"), [("orders", "orders"), ("a/b", "a%2Fb"), ("..", "%2E%2E"), ("x y=z", "x%20y%3Dz")]
)
def test_any_group_has_a_folder_of_its_own(group, name):
    assert folder_name(group) == name


def test_a_login_in_an_address_is_not_shown():
    assert str(AuditFolder("s3://key:secret@bucket/audit?token=x", "g")) == "s3://bucket/audit"


class Flaky(AuditFolder):
    """Storage whose next writes fail, before or after they take effect."""

    def __init__(self, path: str, group: str) -> None:
        super().__init__(path, group)
        self.lost = 0

    def write_bytes(self, name: str, content: object) -> None:
        super().write_bytes(name, content)
        if self.lost:
            self.lost -= 1
            raise OSError("the answer was lost")


async def test_an_open_that_failed_can_be_repeated_and_leaves_one_card(tmp_path, monkeypatch):
    monkeypatch.setattr(record_files, "AuditFolder", Flaky)
    accounts = AuditRecordFiles(str(tmp_path), "shop", ManualClock())
    accounts._folder.lost = 1
    with pytest.raises(AuditNotWritten, match="the answer was lost"):
        await accounts.open()
    await AuditRecordFiles(str(tmp_path), "shop", ManualClock()).open()  # another session came between
    await accounts.open()
    assert len(list(tmp_path.rglob("*.json"))) == 2


async def test_what_was_never_open_writes_no_end(tmp_path):
    accounts = AuditRecordFiles(str(tmp_path), "shop", ManualClock())
    await accounts.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "error", "retriable"),
    [
        ("s3://books/all", OSError("no route"), True),
        ("s3://books/all", ValueError("no such region"), False),
        ("file:///books", OSError("read-only"), False),
        ("/books", OSError("read-only"), False),
    ],
)
async def test_only_remote_storage_may_be_out_of_reach_for_a_while(monkeypatch, path, error, retriable):
    def make(self: AuditFolder) -> None:
        raise error

    monkeypatch.setattr(AuditFolder, "make", make)
    with pytest.raises(AuditNotWritten) as raised:
        await AuditRecordFiles(path, "shop", ManualClock()).open()
    assert raised.value.retriable is retriable


def test_a_file_and_its_name_are_on_disk_when_it_is_written(tmp_path, monkeypatch):
    """The content was, and the name not: after a loss of power committed records had no audit record."""
    steps: list[tuple[str, Path]] = []
    names: dict[int, Path] = {}
    os_open, replace = os.open, Path.replace

    def opened(path, *options):
        descriptor = os_open(path, *options)
        names[descriptor] = Path(path)
        return descriptor

    def synced(descriptor):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        steps.append(("sync", names[descriptor] if is_folder else Path("content")))

    def renamed(path, target):
        steps.append(("rename", target))
        return replace(path, target)

    monkeypatch.setattr(os, "open", opened)
    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    group = tmp_path / "new" / "group=g"
    folder = AuditFolder(str(tmp_path / "new"), "g")
    folder.make()
    assert steps == [("sync", group.parent), ("sync", tmp_path)], "folders above it may be new, too"
    steps.clear()
    folder.write_bytes("day=1/a.parquet", b"1")
    named = [("sync", Path("content")), ("rename", group / "day=1" / "a.parquet"), ("sync", group / "day=1")]
    assert steps == [("sync", group), *named]
    steps.clear()
    folder.write_bytes("day=1/a.parquet", b"2")
    assert steps == named
    steps.clear()
    AuditFolder(str(tmp_path / "new"), "g").write_bytes("day=1/a.parquet", b"3")
    assert steps[0] == ("sync", group), "another process has made it, and may not have come to its name"


@pytest.mark.parametrize(("number", "is_raised"), [(errno.EINVAL, False), (errno.EIO, True)])
def test_a_file_system_that_syncs_no_folders_is_written_to(tmp_path, monkeypatch, number, is_raised):
    folder = AuditFolder(str(tmp_path), "g")
    fsync = os.fsync

    def refuse(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, "refused")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="refused") if is_raised else nullcontext():
        folder.write_bytes("day=1/a.parquet", b"1")
    assert is_raised or folder.read_bytes("day=1/a.parquet") == b"1"
