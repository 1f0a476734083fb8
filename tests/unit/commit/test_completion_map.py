from __future__ import annotations

import base64
from uuid import UUID

import pytest

from multilane.commit.completion_map import NOTHING, LogIdentity, decode, encode, read, write
from multilane.commit.sections import MOST_BYTES

LOG = LogIdentity(7, UUID(int=99))


def test_nothing_settled_beyond_needs_no_text():
    assert encode(10, ()) == ""
    assert decode("", 10) == ()


def test_runs_survive_the_text():
    runs = ((12, 12), (20, 300), (2**40, 2**41))
    assert decode(encode(10, runs), 10) == runs


def test_what_does_not_fit_is_left_out_from_the_far_end():
    runs = tuple((1000 + 1000 * i, 1000 + 1000 * i + 500) for i in range(5000))
    text = encode(0, runs)
    kept = decode(text, 0)
    assert len(text) <= MOST_BYTES
    assert 0 < len(kept) < len(runs)
    assert kept == runs[: len(kept)]


def test_a_text_that_was_moved_to_another_offset_says_nothing():
    assert decode(encode(10, ((12, 15),)), 11) == ()


def test_later_sections_are_ignored():
    text = encode(10, ((12, 15),))
    assert decode(f"{text};p=something", 10) == ((12, 15),)


@pytest.mark.parametrize(
    "text",
    [
        "somebody else's note",
        "multilane/2;r=AAAA",
        "multilane/1",
        "multilane/1;r=",
        "multilane/1;r=!!!!",
        "multilane/1;r=AAAA;r=AAAA",
        "multilane/1;r=" + base64.b64encode(bytes(9)).decode(),
        "\u00e9" * 10,
        "multilane/1;r=" + "A" * 5000,
    ],
)
def test_what_is_not_exactly_ours_says_nothing(text):
    assert decode(text, 10) == ()


def test_the_log_survives_the_text():
    decoded = read(encode(10, ((12, 15),), LOG), 10)
    assert (decoded.runs, decoded.log) == (((12, 15),), LOG)
    assert read(encode(10, ((12, 15),), LogIdentity(2**31 - 1)), 10).log == LogIdentity(2**31 - 1, None)


def test_without_an_epoch_there_is_nothing_to_bind_runs_to():
    assert encode(10, ((12, 15),), LogIdentity(-1, LOG.topic_id)) == encode(10, ((12, 15),))
    assert read(encode(10, ((12, 15),)), 10).log is None


def test_a_log_can_be_named_without_runs():
    assert read(write(10, (), LOG), 10).log == LOG
    assert encode(10, (), LOG) == ""


def test_versions_before_read_the_runs_of_this_one():
    """They look for `r=` and ignore other sections."""
    runs, log = encode(10, ((12, 15),), LOG).rsplit(";", 1)
    assert runs == encode(10, ((12, 15),))
    assert log.startswith("l=")


@pytest.mark.parametrize(
    "log",
    [
        "l=",
        "l=AAAA",
        "l=!!!!",
        encode(10, ((12, 16),), LOG).split(";")[2],
        encode(11, ((12, 15),), LOG).split(";")[2],
        ";".join([encode(10, ((12, 15),), LOG).split(";")[2]] * 2),
    ],
    ids=["empty", "short", "no base64", "of other runs", "of another offset", "twice"],
)
def test_a_log_that_is_not_exactly_ours_voids_the_runs_too(log):
    assert read(f"{encode(10, ((12, 15),))};{log}", 10) == NOTHING


@pytest.mark.parametrize(
    "numbers",
    [
        [0, 5],
        [2, 0],
        [2],
        [2**63 - 11, 1],
        [2, 2**63 - 1],
        [2, 2**70],
    ],
    ids=["at the frontier", "empty", "half a run", "beyond 63 bits", "an end beyond 63 bits", "a number of 71 bits"],
)
def test_numbers_that_no_log_has_say_nothing(numbers):
    """Also with a valid checksum: any tool that may commit can compute one."""
    from multilane.commit.sections import checksum, number

    content = b"".join(map(number, numbers))
    text = "multilane/1;r=" + base64.b64encode(checksum(10, content) + content).decode()
    assert read(text, 10) == NOTHING


def test_the_text_stays_within_what_brokers_keep():
    runs = tuple((10**12 * n, 10**12 * n + 5) for n in range(1, 4000))
    text = encode(0, runs, LogIdentity(2**31 - 1, UUID(int=2**128 - 1)))
    assert 4000 < len(text) <= MOST_BYTES
    assert read(text, 0).log == LogIdentity(2**31 - 1, UUID(int=2**128 - 1))
