"""Decoding into slots, and a pool that does not die in silence."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from batch_builder import Batch, rows
from multilane.client.events import BatchReadable, BatchUnreadable
from multilane.client.fetch.buffer import FetchBuffer
from multilane.client.fetch.cursor import At, Cursor
from multilane.client.fetch.decoder import DecoderPool, FrameJob
from multilane.client.fetch.fetching import DecodeTask
from multilane.errors import CorruptBatch
from multilane.types import Offset, TopicPartition
from multilane.wire.fetch import FetchedPartition
from multilane.wire.records.batches import scan
from multilane.wire.records.decode import DecodeOptions, load_kernels
from response_builder import as_array

P = TopicPartition("t", 0)


class Desk:
    def __init__(self) -> None:
        load_kernels()
        self.buffer = FetchBuffer(1 << 20, on_ready=lambda: None, on_room=lambda: None)
        self.buffer.expect({P: 1})
        self.cursor = Cursor(P, 1, At(Offset(0)))
        self.told: list[Any] = []

    def job(self, data: bytes, *, again: bool = False) -> FrameJob:
        frame = as_array(data)
        (slot,) = self.buffer.reserve(frame.nbytes, [(self.cursor, len(data))])
        table = scan(frame, 0, len(data), 0)
        fetched = FetchedPartition(None, "t", 0, 0, 90, 80, 5, (), -1, None, None, 0, len(data))
        task = DecodeTask(slot, table, fetched, "broker 1", again)
        return FrameJob(frame, [task], DecodeOptions(), self.buffer, self.told.append)


def test_a_good_frame_fills_its_slot_with_the_watermarks():
    desk = Desk()
    desk.job(Batch(rows(3)).build())()
    (block,) = desk.buffer.take(None, ())
    assert block.offsets.tolist() == [0, 1, 2]
    assert (block.high_watermark, block.last_stable_offset, block.log_start_offset) == (90, 80, 5)
    assert desk.told == []


def test_what_is_fine_the_second_time_is_told():
    desk = Desk()
    desk.job(Batch(rows(3)).build(), again=True)()
    assert desk.told == [BatchReadable(P, 1)]


def test_what_cannot_be_read_is_told_with_its_place_and_the_run_to_fetch_it_in():
    desk = Desk()
    desk.job(Batch(rows(3), crc=1).build())()
    (event,) = desk.told
    assert isinstance(event, BatchUnreadable)
    assert (event.partition, event.generation, event.run) == (P, 1, 1)
    assert isinstance(event.error, CorruptBatch)
    assert (event.error.topic, event.error.partition, event.error.broker, event.error.offset) == ("t", 0, "broker 1", 0)
    assert desk.buffer.take(None, ()) == []
    assert desk.buffer.charged_bytes == 0


def test_good_batches_before_a_bad_one_are_kept():
    desk = Desk()
    desk.job(Batch(rows(2)).build() + Batch(rows(2), 2, crc=1).build())()
    (block,) = desk.buffer.take(None, ())
    assert block.offsets.tolist() == [0, 1]
    assert desk.told[0].error.offset == 2


@pytest.mark.parametrize("late", [False, True], ids=["before it began", "while it was decoded"])
def test_what_nobody_waits_for_any_more_is_not_told(late):
    desk = Desk()
    job = desk.job(Batch(rows(3), crc=1).build())
    desk.buffer.expect({P: 2})
    if late:
        job._decode(job.tasks[0])
    else:
        job()
    assert desk.told == []


def test_a_pool_works_in_order_and_ends():
    done: list[int] = []
    pool = DecoderPool("test-decoder", lambda error: pytest.fail(str(error)))
    pool._wanted = 1
    for number in range(5):
        pool.submit(lambda n=number: done.append(n))
    pool.close()
    pool.join(10.0)
    assert done == [0, 1, 2, 3, 4]


def test_a_job_that_crashes_is_told_and_the_pool_goes_on():
    crashed: list[BaseException] = []
    finished = threading.Event()
    pool = DecoderPool("test-decoder", crashed.append)

    def crash() -> None:
        raise MemoryError("too much")

    pool.submit(crash)
    pool.submit(finished.set)
    assert finished.wait(10.0)
    pool.close()
    pool.join(10.0)
    assert [type(e) for e in crashed] == [MemoryError]
