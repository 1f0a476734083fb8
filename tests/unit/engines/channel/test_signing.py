"""What the receiving signer accepts: the next message of its sender, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from multilane.engines.channel.signing import DRIVER, MEMBER, MessageSigner, Transcript

TRANSCRIPT = Transcript(("10.0.0.5", 4000), "d" * 32, "e" * 32)


def signer(run="a run", transcript=TRANSCRIPT, sender=MEMBER):
    return MessageSigner(f"the token of {run}", transcript, sender)


def test_messages_arrive_in_order():
    sender, receiver = signer(), signer()
    texts = [b"", b"{}", b'{"kind": "told"}', b"\xff" * 1_000, b"{}"]
    assert [receiver.opened(sender.signed(text)) for text in texts] == texts


def test_no_byte_can_change():
    line = signer().signed(b'{"kind": "told", "offset": 7}')
    for place in range(len(line)):
        changed = line[:place] + bytes([line[place] ^ 1]) + line[place + 1 :]
        assert signer().opened(changed) is None
    assert all(signer().opened(line[:length]) is None for length in range(len(line)))
    assert signer().opened(line + b" ") is None


@pytest.mark.parametrize(
    ("order", "accepted"),
    [((0, 0), 1), ((1, 0), 0), ((0, 2), 1), ((0, 2, 1), 1), ((0, 1, 0), 2)],
    ids=["repeated", "in another order", "one left out", "swapped", "an old one"],
)
def test_none_is_repeated_dropped_or_out_of_order(order, accepted):
    sender, receiver = signer(), signer()
    lines = [sender.signed(b"line %d" % number) for number in range(3)]
    heard = [receiver.opened(lines[number]) for number in order]
    assert heard == [b"line %d" % number for number in order[:accepted]] + [None] * (len(order) - accepted)


def test_after_a_bad_message_even_the_right_one_is_refused():
    sender, receiver = signer(), signer()
    line = sender.signed(b"first")
    assert receiver.opened(b"x" + line) is None
    assert receiver.opened(line) is None
    assert receiver.opened(sender.signed(b"second")) is None


@pytest.mark.parametrize(
    "other",
    [
        signer(run="another"),
        signer(sender=DRIVER),
        signer(transcript=replace(TRANSCRIPT, driver_nonce="f" * 32)),
        signer(transcript=replace(TRANSCRIPT, member_nonce="f" * 32)),
        signer(transcript=replace(TRANSCRIPT, address=("10.0.0.5", 4001))),
    ],
    ids=["another run", "sent back", "another driver's number", "another member's number", "another server"],
)
def test_a_message_of_another_sender_is_refused(other):
    assert signer().opened(other.signed(b"{}")) is None


def test_proofs_differ_by_all_that_matters():
    proofs = {
        transcript.proof(token, role)
        for transcript in (
            TRANSCRIPT,
            replace(TRANSCRIPT, driver_nonce="f" * 32),
            replace(TRANSCRIPT, member_nonce="f" * 32),
        )
        for token in ("token", "another")
        for role in (DRIVER, MEMBER)
    }
    assert len(proofs) == 12
