"""SmallFile files become large ones; at no time is an account in neither."""

from __future__ import annotations

import pyarrow.parquet as pq
import pytest

from multilane.audit import merging
from multilane.audit.folder import AuditFolder
from multilane.audit.merging import READABLE_SECONDS, Merging, SmallFile, to_merge
from multilane.audit.record_files import AuditRecordFiles
from multilane.clock import ManualClock
from multilane.wire.records.record import Record


@pytest.fixture
def few(monkeypatch):
    """Enough, in these tests."""
    monkeypatch.setattr(merging, "FILES_PER_MERGE", 3)
    monkeypatch.setattr(merging, "MAX_ROWS", 100)


def small(*rows, day="day=1"):
    return [SmallFile(f"{day}/{number}.parquet", many) for number, many in enumerate(rows)]


@pytest.mark.parametrize(
    ("files", "count"),
    [
        ([], 0),
        (small(1, 1), 0),
        (small(1, 1, 1), 3),
        (small(60, 40, 1), 2),
        (small(101, 1, 1), 1),
        (small(500, 1, 1), 1),
        (small(1, day="day=1") + small(1, 1, day="day=2"), 1),
        (small(1, 1, day="day=1") + small(1, day="day=2"), 2),
    ],
)
def test_how_many_belong_together(few, files, count):
    assert to_merge(files) == count


class Shelf:
    """Files of accounts, written one after the other."""

    def __init__(self, path, clock):
        self.path = path
        self.accounts = AuditRecordFiles(str(path), "g", clock)
        self._next = 0

    async def write(self, count):
        for _ in range(count):
            self.accounts.journal.note_done([Record("orders", 0, self._next, 0, 0, b"k", b"v")])
            self._next += 1
            await self.accounts.flush()
            await self.accounts.close()

    def files(self):
        return sorted(path for path in self.path.rglob("*.parquet"))

    def merged(self):
        return [path for path in self.files() if path.stem.endswith("-merged")]

    def sequences(self):
        return {sequence for file in self.files() for sequence in pq.ParquetFile(file).read()["sequence"].to_pylist()}


async def test_small_files_stay_for_those_who_read_them_and_are_deleted_later(few, tmp_path):
    clock = ManualClock()
    shelf = Shelf(tmp_path, clock)
    await shelf.write(3)
    assert (len(shelf.merged()), len(shelf.files())) == (1, 4)
    [merged] = shelf.merged()
    rows = pq.ParquetFile(merged).read().to_pylist()
    assert [(row["offset"], row["sequence"], row["topic"], row["outcome"]) for row in rows] == [
        (0, 0, "orders", "done"),
        (1, 1, "orders", "done"),
        (2, 2, "orders", "done"),
    ]
    clock.advance(READABLE_SECONDS - 1)
    await shelf.write(3)
    assert (len(shelf.merged()), len(shelf.files())) == (2, 8)
    clock.advance(2)
    await shelf.write(3)
    assert (len(shelf.merged()), len(shelf.files())) == (3, 9)
    assert shelf.sequences() == set(range(9))


async def test_columns_are_the_same_before_and_after(few, tmp_path):
    shelf = Shelf(tmp_path, ManualClock())
    await shelf.write(3)
    [merged] = shelf.merged()
    kinds = [pq.ParquetFile(file).schema_arrow for file in shelf.files()]
    assert all(kind.equals(kinds[0]) for kind in kinds)
    assert pq.ParquetFile(merged).metadata.num_rows == 3


async def test_what_cannot_be_merged_stays_and_nobody_waits_for_it(few, tmp_path, caplog):
    shelf = Shelf(tmp_path, ManualClock())
    await shelf.write(2)
    shelf.files()[0].write_bytes(b"damaged")
    await shelf.write(2)
    assert shelf.merged() == []
    assert "cannot merge 3 audit files" in caplog.text
    await shelf.write(2)
    [merged] = shelf.merged()
    assert pq.ParquetFile(merged).read()["sequence"].to_pylist() == [3, 4, 5]


async def test_a_file_that_somebody_deleted_is_deleted(few, tmp_path):
    clock = ManualClock()
    shelf = Shelf(tmp_path, clock)
    await shelf.write(3)
    next(file for file in shelf.files() if file not in shelf.merged()).unlink()
    clock.advance(READABLE_SECONDS)
    await shelf.write(3)
    assert len(shelf.merged()) == 2
    assert shelf.sequences() == set(range(6))


async def test_elsewhere_too(few, tmp_path):
    """By Arrow's file systems, as for s3:// and others."""
    folder = AuditFolder(f"file://{tmp_path}", "g")
    clock = ManualClock()
    merging = Merging(folder, clock)
    table = pq.read_table  # a function that makes tables is wanted: of a file that was written before
    shelf = Shelf(tmp_path / "here", clock)
    await shelf.write(1)
    [one] = shelf.files()
    for number in range(3):
        folder.write(f"day=1/{number}.parquet", lambda: table(one, partitioning=None))
        merging.written(f"day=1/{number}.parquet", 1)
    await merging.idle()
    names = {path.name for path in (tmp_path / "group=g" / "day=1").iterdir()}
    assert names == {"0.parquet", "1.parquet", "2.parquet", "0-merged.parquet"}
    clock.advance(READABLE_SECONDS)
    for number in range(3, 6):
        folder.write(f"day=1/{number}.parquet", lambda: table(one, partitioning=None))
        merging.written(f"day=1/{number}.parquet", 1)
    await merging.idle()
    names = {path.name for path in (tmp_path / "group=g" / "day=1").iterdir()}
    assert names == {"0-merged.parquet", "3-merged.parquet", "3.parquet", "4.parquet", "5.parquet"}
