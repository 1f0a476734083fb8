"""Generated logs through the decoder and through two other readers: all must agree."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from batch_builder import (
    ABORT,
    APPEND_TIME,
    COMMIT,
    DELETE_HORIZON,
    TRANSACTIONAL,
    Batch,
    Rec,
    join,
    marker,
    rows,
)
from multilane.wire.records.decode import load_kernels
from reference_reader import kafka_python_rows
from reference_reader import read as reference
from span_reading import read_bytes, rows_of

load_kernels()
settings.register_profile("decoder", deadline=None, max_examples=100)

contents = st.one_of(st.none(), st.binary(max_size=30), st.binary(min_size=60, max_size=140))
header_pairs = st.lists(
    st.tuples(st.text(max_size=6).map(lambda text: text.encode("utf-8")), st.one_of(st.none(), st.binary(max_size=9))),
    max_size=3,
)
times = st.one_of(st.integers(-5, 5), st.integers(-(1 << 41), 1 << 41))


@st.composite
def data_batches(draw: st.DrawFn, base: int) -> Batch:
    """A batch with gaps between, before and behind its records."""
    steps = draw(st.lists(st.integers(1, 3), max_size=12))
    deltas = [sum(steps[: i + 1]) - 1 for i in range(len(steps))]
    records = [Rec(d, draw(contents), draw(contents), draw(times), draw(header_pairs)) for d in deltas]
    return Batch(
        records,
        base,
        draw(st.integers(0, 4)),
        draw(st.sampled_from([0, APPEND_TIME, DELETE_HORIZON, APPEND_TIME | DELETE_HORIZON])),
        max_timestamp=draw(st.one_of(st.none(), st.integers(0, 1 << 42))),
        last_delta=(deltas[-1] if deltas else 0) + draw(st.sampled_from([0, 0, 5])),
        leader_epoch=draw(st.integers(0, 3)),
        xerial=draw(st.booleans()),
        chunk=draw(st.sampled_from([50, 32768])),
        sums=draw(st.booleans()),
        linked=draw(st.booleans()),
    )


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    batches: list[Batch] = []
    base = draw(st.sampled_from([0, 1000, 1 << 50]))
    for _ in range(draw(st.integers(0, 6))):
        batches.append(draw(data_batches(base)))
        base = batches[-1].end + draw(st.sampled_from([0, 0, 7]))
    return batches


@settings(settings.get_profile("decoder"))
@given(logs(), st.data())
def test_round_trip(batches: list[Batch], data: st.DataObject):
    last = batches[-1].end if batches else 0
    first = batches[0].base_offset if batches else 0
    fetch_offset = data.draw(st.integers(first, max(first, last + 2)))
    written = join(batches)
    block = read_bytes(written, fetch_offset=fetch_offset)
    ours = rows_of(block)
    theirs = reference(written, fetch_offset)
    assert block.error is None
    assert ours == theirs.rows
    assert block.next_offset == theirs.next_offset
    assert ours == kafka_python_rows(written, fetch_offset)
    block.keys.validate(full=True)
    block.values.validate(full=True)


@settings(settings.get_profile("decoder"))
@given(logs(), st.data())
def test_slices_compact_and_arrow_agree(batches: list[Batch], data: st.DataObject):
    block = read_bytes(join(batches))
    start = data.draw(st.integers(0, len(block)))
    stop = data.draw(st.integers(start, len(block)))
    part = block.slice(start, stop)
    expected = rows_of(block)[start:stop]
    assert rows_of(part) == expected
    small = part.compact()
    assert rows_of(small) == expected
    assert (small.next_offset, small.own_bytes) == (part.next_offset, part.own_bytes)
    assert [small.epoch_at(i) for i in range(len(small))] == [block.epoch_at(start + i) for i in range(len(part))]
    plain, copied = part.arrow(), part.arrow(copy=True)
    assert plain.equals(copied.cast(plain.schema))
    assert small.arrow().equals(plain)
    assert plain.equals(block.arrow().slice(start, stop - start))
    pairs = [tuple((h["key"], h["value"]) for h in row or ()) for row in plain["headers"].to_pylist()]
    assert pairs == [row[5] for row in expected]


@settings(settings.get_profile("decoder"))
@given(logs(), st.integers(0, 400))
def test_any_cut_leaves_whole_batches(batches: list[Batch], missing: int):
    written = join(batches)
    cut = written[: max(0, len(written) - missing)]
    sizes = [len(b.build()) for b in batches]
    whole = sum(1 for i in range(len(sizes)) if sum(sizes[: i + 1]) <= len(cut))
    if not whole:
        return
    assert rows_of(read_bytes(cut)) == reference(join(batches[:whole])).rows


# --- transactions ----------------------------------------------------------------------------------------------------


class LogWriter:
    """What a broker would write for steps of (producer, action), and what it would tell of aborted transactions.

    The expected rows are kept as a plain set: offsets of data outside of transactions or in committed ones.
    """

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.open: dict[int, list[int]] = {}
        self.committed: set[int] = set()
        self.aborted: list[tuple[int, int, int]] = []  # producer, first offset, offset of the marker

    @property
    def end(self) -> int:
        return self.batches[-1].end if self.batches else 0

    def send(self, producer: int, many: int, codec: int) -> None:
        offset = self.end
        self.batches.append(Batch(rows(many), offset, codec, TRANSACTIONAL, producer_id=producer, producer_epoch=0))
        self.open.setdefault(producer, []).extend(range(offset, offset + many))

    def plain(self, many: int) -> None:
        offset = self.end
        self.batches.append(Batch(rows(many), offset))
        self.committed.update(range(offset, offset + many))

    def finish(self, producer: int, kind: int) -> None:
        offsets = self.open.pop(producer, [])
        at = self.end
        self.batches.append(marker(kind, at, producer))
        if kind == COMMIT:
            self.committed.update(offsets)
        else:
            self.aborted.append((producer, offsets[0] if offsets else at, at))


steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), st.integers(1, 3), st.integers(1, 4), st.sampled_from([0, 0, 3, 4])),
        st.tuples(st.just("plain"), st.integers(1, 3)),
        st.tuples(st.just("finish"), st.integers(1, 3), st.sampled_from([ABORT, COMMIT])),
    ),
    max_size=25,
)


def written_log(actions: Sequence[tuple]) -> LogWriter:
    log = LogWriter()
    for name, *arguments in actions:
        getattr(log, name)(*arguments)
    for producer in list(log.open):
        log.finish(producer, ABORT)  # nothing beyond the last stable offset is fetched
    return log


@settings(settings.get_profile("decoder"))
@given(steps, st.randoms(use_true_random=False), st.booleans())
def test_read_committed_from_every_offset(actions, random, empty_listed: bool):
    log = written_log(actions)
    for fetch_offset in range(log.end + 1):
        rest = [b for b in log.batches if b.end > fetch_offset]
        listed = [
            (p, first) for p, first, last in log.aborted if last >= fetch_offset and (empty_listed or first < last)
        ]
        listed += random.sample(listed, len(listed) // 2)
        random.shuffle(listed)
        block = read_bytes(join(rest), fetch_offset=fetch_offset, aborted=listed, read_committed=True)
        assert block.error is None
        assert block.offsets.tolist() == sorted(o for o in log.committed if o >= fetch_offset)
        assert block.next_offset == log.end


@settings(settings.get_profile("decoder"))
@given(steps, st.integers(0, 40), st.integers(1, 5))
def test_read_committed_in_pieces(actions, start: int, size: int):
    """Fetched a few batches at a time, each time with the entries that touch the piece, as a broker answers."""
    log = written_log(actions)
    position, found = min(start, log.end), []
    while position < log.end:
        piece = [b for b in log.batches if b.end > position][:size]
        upper = piece[-1].end
        listed = [(p, first) for p, first, last in log.aborted if last >= position and first < upper]
        block = read_bytes(join(piece), fetch_offset=position, aborted=listed, read_committed=True)
        found += block.offsets.tolist()
        position = block.next_offset
    assert found == sorted(o for o in log.committed if o >= min(start, log.end))
