from __future__ import annotations

import base64

import pytest

from multilane.commit.completion_map import MOST_BYTES, decode, encode


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


def test_later_sections_are_passed_over():
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
