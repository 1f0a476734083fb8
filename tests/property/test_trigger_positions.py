"""Named positions against every text, and the joint commit against a model of plain sets."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multilane.commit import completion_map, trigger_positions
from multilane.commit.completion_map import NOTHING, LogIdentity, encode, fits, fitting, read, write
from multilane.commit.joint import is_over, joint, missed
from multilane.commit.ledger import CommitPoint
from multilane.commit.sections import LARGEST, MOST_BYTES, checksum
from multilane.commit.trigger_positions import Position, TooManyTriggers

LOG = LogIdentity(3)
END = 60
NAMES = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "Zs"]), min_size=1, max_size=20).filter(
    str.isprintable
)


def runs_of(settled: set[int], frontier: int) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    for offset in sorted(o for o in settled if o > frontier):
        if runs and runs[-1][1] + 1 == offset:
            runs[-1] = (runs[-1][0], offset)
        else:
            runs.append((offset, offset))
    return tuple(runs)


def frontier_of(settled: set[int]) -> int:
    return next(o for o in range(END + 2) if o not in settled)


settled_sets = st.builds(lambda low, more: set(range(low)) | more, st.integers(0, END), st.sets(st.integers(0, END)))


def position_of(settled: set[int], since: int | None = None) -> Position:
    return Position(frontier_of(settled), runs_of(settled, frontier_of(settled)), since)


def point_of(settled: set[int]) -> CommitPoint:
    offset = frontier_of(settled)
    return CommitPoint(offset, 3, runs_of(settled, offset), 3)


@given(
    st.integers(0, 2**62),
    st.dictionaries(NAMES, st.tuples(settled_sets, st.integers(-10, 10**6), st.none() | st.integers(0, 2**33))),
)
def test_positions_survive_the_text(frontier, found):
    positions = {}
    for name, (settled, ahead, since) in found.items():
        start = max(0, frontier + ahead)
        own = position_of(settled)
        runs = tuple((first + start, last + start) for first, last in own.runs)
        positions[name] = Position(own.offset + start, runs, since)
    text = write(frontier, (), LOG, positions)
    assert read(text, frontier).positions == positions
    assert read(text, frontier + 1) == NOTHING


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=40), st.sampled_from([MOST_BYTES, 5_000, 3_000, LARGEST]))
def test_a_text_is_never_too_long_and_keeps_every_position(lengths, most):
    """Runs that do not fit are left out from the far end; no trigger loses its share to another."""
    positions = {
        f"trigger-{n}": Position(1000 + n, tuple((2000 + 3000 * i, 2000 + 3000 * i + 40) for i in range(many)))
        for n, many in enumerate(lengths)
    }
    text = write(1000, ((1500, 1600),), LOG, positions, most)
    assert len(text) <= min(most, MOST_BYTES)
    found = read(text, 1000)
    assert found.runs == ((1500, 1600),)
    assert found.positions.keys() == positions.keys()
    least = min(len(p.runs) for p in found.positions.values() if p.runs != positions["trigger-0"].runs or p.runs)
    for name, position in found.positions.items():
        assert position.offset == positions[name].offset
        assert position.runs == positions[name].runs[: len(position.runs)]
        assert len(position.runs) >= min(least, len(positions[name].runs))
    if sum(lengths) <= 60 and most >= MOST_BYTES:
        assert found.positions == positions


LIMITS = st.one_of(st.integers(0, 5_000), st.integers(0, 2 * LARGEST), st.just(MOST_BYTES))


@given(st.integers(1, 900), st.integers(3, 60), LIMITS)
def test_names_that_fit_are_never_refused(many, length, most):
    names = [f"{n:03}".ljust(length, "x") for n in range(many)]
    positions = {name: Position(2**62, ((2**62 + 5, 2**62 + 9),), 2**33) for name in names}
    runs = tuple((2 + 3 * n, 2 + 3 * n) for n in range(900))
    if fits(names, most):
        text = write(0, runs, LogIdentity(2**31 - 1), positions, most)
        assert len(text) <= min(most, LARGEST)
        assert read(text, 0).positions.keys() == set(names)
    elif many * (length + 12) > min(most, LARGEST):
        with pytest.raises(TooManyTriggers) as refused:
            write(0, runs, LogIdentity(2**31 - 1), positions, most)
        assert 0 <= refused.value.fitting < many
    many_that_fit = fitting(names, most)
    assert not many_that_fit or fits(names[:many_that_fit], most)
    assert many_that_fit == many or not fits(names[: many_that_fit + 1], most)


@given(st.integers(0, 900), st.integers(0, 2 * LARGEST))
def test_without_triggers_a_text_is_within_the_limit_or_left_out(many, most):
    runs = tuple((2 + 3 * n, 2 + 3 * n) for n in range(many))
    text = encode(0, runs, LogIdentity(2**31 - 1), {}, most)
    assert len(text) <= min(most, MOST_BYTES)
    assert read(text, 0).runs == runs[: len(read(text, 0).runs)]


@given(st.integers(0, 2**63 - 1), st.binary(max_size=60))
def test_forged_positions_say_nothing_or_are_sound(frontier, content):
    text = "multilane/1;r=" + base64.b64encode(checksum(frontier, b"")).decode()
    text += ";t=" + base64.b64encode(checksum(frontier, b"\x01" + content) + b"\x01" + content).decode()
    for name, position in read(text, frontier).positions.items():
        assert 0 < len(name.encode()) <= trigger_positions.LONGEST_NAME
        assert name.isprintable()
        assert 0 <= position.offset < 2**63
        edges = [position.offset - 1, *(edge for run in position.runs for edge in run)]
        assert edges == sorted(edges)
        assert position.end < 2**63 + 1


@pytest.mark.parametrize("section", ["t=", "t=AAAA", "t=!!!!", "t=AAAA;t=AAAA", "t=" + "A" * 4])
def test_a_broken_section_voids_the_text(section):
    text = write(10, ((12, 15),), LOG)
    assert read(f"{text};{section}", 10) == NOTHING


def test_an_older_reader_sees_the_runs_that_all_have_settled():
    """It looks for `r=` and `l=` alone."""
    text = write(10, ((12, 15),), LOG, {"a": Position(10, ((12, 15),)), "b": Position(20)})
    without = text[: text.index(";t=")]
    assert read(without, 10) == completion_map.CompletionMap(((12, 15),), LOG)


@given(
    st.dictionaries(st.sampled_from("abcd"), settled_sets, min_size=1),
    st.dictionaries(st.sampled_from("xyz"), st.tuples(settled_sets, st.none() | st.integers(0, 100))),
    st.integers(0, END),
)
def test_the_joint_commit_claims_only_what_all_have_settled(here, away, floor):
    absent = {name: position_of(settled, since) for name, (settled, since) in away.items()}
    point = joint(
        {name: point_of(settled) for name, settled in here.items()}, absent, CommitPoint(floor, 3, (), 3), 100.0, 50.0
    )
    waited_for = [settled for name, (settled, _) in away.items() if not is_over(absent[name], 100.0, 50.0)]
    everyone = [*here.values(), *waited_for]
    lowest = min(frontier_of(settled) for settled in everyone)
    assert point.offset == max(floor, lowest)
    claimed = {o for first, last in point.runs for o in range(first, last + 1)}
    common = set.intersection(*everyone)
    assert claimed == {o for o in common if o > point.offset}
    assert all(first > point.offset for first, _ in point.runs)
    for name, settled in here.items():
        assert point.positions[name] == position_of(settled)
    for name, position in absent.items():
        assert point.positions[name] == position


def test_who_is_missed_is_missed_since_the_first_time():
    positions = {"new": Position(5), "known": Position(5, (), 7), "of a wrong clock": Position(5, (), 2**33)}
    since = {name: position.absent_since for name, position in missed(positions, 100.9).items()}
    assert since == {"new": 100, "known": 7, "of a wrong clock": 100}
