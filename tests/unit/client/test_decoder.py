"""Decoding into slots, and a pool that does not die in silence."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from batch_builder import Batch, rows
from multilane.client.events import BatchReadable, BatchUnreadable
from multilane.client.fetch.buffer import FetchBuffer
from multilane.client.fetch.cursor import At, Cursor
from multilane.client.fetch.decoder import DecoderPool, DecodeTask, FrameJob, Taker
from multilane.errors import CorruptBatch
from multilane.types import Offset, TopicPartition
from multilane.wire.fetch import FetchedPartition
from multilane.wire.records.batches import scan
from multilane.wire.records.decode import DecodeOptions, load_kernels
from response_builder import as_array

P = TopicPartition("t", 0)


class Harness:
    def __init__(self) -> None:
        load_kernels()
        self.buffer = FetchBuffer(1 << 20, on_ready=lambda: None, on_room=lambda: None)
        self.buffer.expect({P: 1})
        self.cursor = Cursor(P, 1, At(Offset(0)))
        self.events: list[Any] = []

    def job(self, data: bytes, *, again: bool = False) -> FrameJob:
        frame = as_array(data)
        (slot,) = self.buffer.reserve(frame.nbytes, [(self.cursor, len(data))])
        table = scan(frame, 0, len(data), 0)
        fetched = FetchedPartition(None, "t", 0, 0, 90, 80, 5, (), -1, None, None, 0, len(data))
        task = DecodeTask((Taker(slot, self.buffer, self.events.append, again),), table, fetched, "broker 1")
        return FrameJob(frame, [task], DecodeOptions())


def test_a_good_frame_fills_its_slot_with_the_watermarks():
    harness = Harness()
    harness.job(Batch(rows(3)).build())()
    (block,) = harness.buffer.take(None, ())
    assert block.offsets.tolist() == [0, 1, 2]
    assert (block.high_watermark, block.last_stable_offset, block.log_start_offset) == (90, 80, 5)
    assert harness.events == []


def test_what_is_fine_the_second_time_is_reported():
    harness = Harness()
    harness.job(Batch(rows(3)).build(), again=True)()
    assert harness.events == [BatchReadable(P, 1)]


def test_what_cannot_be_read_is_reported_with_its_place_and_the_epoch_to_refetch_it_in():
    harness = Harness()
    harness.job(Batch(rows(3), crc=1).build())()
    (event,) = harness.events
    assert isinstance(event, BatchUnreadable)
    assert (event.partition, event.generation, event.refetch_epoch) == (P, 1, 1)
    assert isinstance(event.error, CorruptBatch)
    assert (event.error.topic, event.error.partition, event.error.broker, event.error.offset) == ("t", 0, "broker 1", 0)
    assert harness.buffer.take(None, ()) == []
    assert harness.buffer.charged_bytes == 0


def test_good_batches_before_a_bad_one_are_kept():
    harness = Harness()
    harness.job(Batch(rows(2)).build() + Batch(rows(2), 2, crc=1).build())()
    (block,) = harness.buffer.take(None, ())
    assert block.offsets.tolist() == [0, 1]
    assert harness.events[0].error.offset == 2


@pytest.mark.parametrize("late", [False, True], ids=["before it began", "while it was decoded"])
def test_what_nobody_waits_for_any_more_is_not_reported(late):
    harness = Harness()
    job = harness.job(Batch(rows(3), crc=1).build())
    harness.buffer.expect({P: 2})
    if late:
        job._decode(job.tasks[0])
    else:
        job()
    assert harness.events == []


def _shared(harnesses: list[Harness], data: bytes, *, copy_out: bool = False) -> FrameJob:
    """One frame's records for several consumers."""
    frame = as_array(data)
    takers = []
    for harness in harnesses:
        (slot,) = harness.buffer.reserve(frame.nbytes, [(harness.cursor, len(data))], is_shared=True)
        takers.append(Taker(slot, harness.buffer, harness.events.append, False))
    fetched = FetchedPartition(None, "t", 0, 0, 90, 80, 5, (), -1, None, None, 0, len(data))
    task = DecodeTask(tuple(takers), scan(frame, 0, len(data), 0), fetched, "broker 1", copy_out)
    return FrameJob(frame, [task], DecodeOptions())


def test_what_several_wanted_is_decoded_once_and_is_the_same_block():
    harnesses = [Harness(), Harness(), Harness()]
    _shared(harnesses, Batch(rows(3)).build())()
    blocks = [harness.buffer.take(None, ())[0] for harness in harnesses]
    assert all(block is blocks[0] for block in blocks)
    assert blocks[0].offsets.tolist() == [0, 1, 2]


def test_what_nobody_but_one_still_wants_is_decoded_for_that_one():
    gone, stays = Harness(), Harness()
    job = _shared([gone, stays], Batch(rows(3)).build())
    gone.buffer.expect({P: 2})
    job()
    assert gone.buffer.take(None, ()) == []
    assert len(stays.buffer.take(None, ())) == 1


def test_each_learns_what_cannot_be_read_in_its_own_refetch_epoch():
    harnesses = [Harness(), Harness()]
    harnesses[1].cursor.refetch_epoch = harnesses[1].buffer.seal(harnesses[1].cursor)
    _shared(harnesses, Batch(rows(2)).build() + Batch(rows(2), 2, crc=1).build())()
    assert [[block.offsets.tolist() for block in harness.buffer.take(None, ())] for harness in harnesses] == [
        [[0, 1]]
    ] * 2
    assert [(event.refetch_epoch, event.error.offset) for harness in harnesses for event in harness.events] == [
        (1, 2),
        (2, 2),
    ]
    harnesses = [Harness(), Harness()]
    _shared(harnesses, Batch(rows(2), crc=1).build())()
    assert [type(event) for harness in harnesses for event in harness.events] == [BatchUnreadable] * 2


def test_a_block_that_is_copied_out_does_not_keep_the_frame():
    one, other = Harness(), Harness()
    job = _shared([one, other], Batch(rows(3)).build(), copy_out=True)
    job()
    (block,) = one.buffer.take(None, ())
    assert not any(np.may_share_memory(buffer, job.frame) for buffer in block.columns.buffers)
    assert [record.value for record in block.records()] == [r.value for r in rows(3)]
    assert (block.high_watermark, block.next_offset) == (90, 3)


def test_a_pool_works_in_order_and_ends():
    done: list[int] = []
    pool = DecoderPool("test-decoder", lambda error: pytest.fail(str(error)))
    pool._thread_limit = 1
    for number in range(5):
        pool.submit(lambda n=number: done.append(n))
    pool.close()
    pool.join(10.0)
    assert done == [0, 1, 2, 3, 4]


def test_what_is_run_at_once_is_run_on_this_thread_and_a_crash_is_reported_too():
    ran: list[threading.Thread] = []
    crashed: list[BaseException] = []
    pool = DecoderPool("test-decoder", crashed.append)

    def crash() -> None:
        raise MemoryError("too much")

    pool.run(lambda: ran.append(threading.current_thread()))
    pool.run(crash)
    assert ran == [threading.current_thread()]
    assert [type(e) for e in crashed] == [MemoryError]
    assert pool._threads == []


def test_a_job_that_crashes_is_reported_and_the_pool_goes_on():
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
