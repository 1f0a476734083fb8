"""Tokens are fetched early, and a valid one stays in use."""

from __future__ import annotations

import pytest

from multilane.client.net.login import Login
from multilane.clock import ManualClock
from multilane.config.security import Token, TokenLogin
from multilane.errors import SaslError
from multilane.secret import Secret
from waiting_pool import WaitingPool


class Harness(WaitingPool):
    """Takes the place of the pool, and has the function that it runs."""

    def __init__(self):
        super().__init__()
        self.asked = 0
        self.trouble = None
        self.clock = ManualClock(wall=1_000.0)
        self.login = Login(TokenLogin(self.provide), lambda: self, self.clock.wall, lambda: None)

    def provide(self):
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return Token(Secret(f"token{self.asked}"), self.clock.wall() + 100.0)

    def said(self):
        """What the next connection would say; None while it has to wait."""
        conversation = self.login.begin()
        return None if conversation is None else conversation.first().split(b"Bearer ")[1].split(b"\x01")[0].decode()


@pytest.fixture
def harness():
    made = Harness()
    assert made.said() is None
    made.work()
    assert made.said() == "token1"
    return made


def test_a_token_is_kept_and_renewed_while_it_still_serves(harness):
    harness.clock.advance(79.0)
    assert (harness.said(), harness.waiting) == ("token1", [])
    harness.clock.advance(2.0)
    assert harness.said() == "token1"
    harness.work()
    assert (harness.said(), harness.asked) == ("token2", 2)


def test_a_renewal_that_fails_takes_nothing_away(harness, caplog):
    harness.clock.advance(81.0)
    harness.trouble = ValueError("the password is pencil")
    assert harness.said() == "token1"
    harness.work()
    assert harness.said() == "token1"
    assert "provider raised ValueError; the current token is valid for another 14 s" in caplog.text
    assert "pencil" not in caplog.text
    assert (harness.said(), harness.waiting) == ("token1", []), "not again at once"
    harness.clock.advance(10.0)
    harness.trouble = None
    assert harness.said() == "token1"
    harness.work()
    assert harness.said() == "token3"


def test_when_it_has_expired_the_failure_is_reported(harness):
    harness.clock.advance(81.0)
    harness.trouble = ValueError()
    harness.said()
    harness.work()
    assert harness.said() == "token1"
    harness.clock.advance(10.0)
    harness.said()
    harness.work()
    assert harness.said() == "token1"
    harness.clock.advance(4.5)
    assert harness.said() is None, "it would be refused on its way"
    harness.work()
    with pytest.raises(SaslError, match="provider raised ValueError"):
        harness.said()


def test_the_first_failure_is_reported():
    harness = Harness()
    harness.trouble = ValueError()
    assert harness.said() is None
    harness.work()
    with pytest.raises(SaslError, match="provider raised ValueError"):
        harness.said()
