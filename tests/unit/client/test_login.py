"""Tokens are fetched early, and a valid one stays in use."""

from __future__ import annotations

import pytest

from multilane.client.net.login import Login
from multilane.clock import ManualClock
from multilane.config.security import Token, TokenLogin
from multilane.errors import SaslError
from multilane.secret import Secret
from waiting_pool import WaitingPool


class Desk(WaitingPool):
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
def desk():
    made = Desk()
    assert made.said() is None
    made.work()
    assert made.said() == "token1"
    return made


def test_a_token_is_kept_and_renewed_while_it_still_serves(desk):
    desk.clock.advance(79.0)
    assert (desk.said(), desk.waiting) == ("token1", [])
    desk.clock.advance(2.0)
    assert desk.said() == "token1"
    desk.work()
    assert (desk.said(), desk.asked) == ("token2", 2)


def test_a_renewal_that_fails_takes_nothing_away(desk, caplog):
    desk.clock.advance(81.0)
    desk.trouble = ValueError("the password is pencil")
    assert desk.said() == "token1"
    desk.work()
    assert desk.said() == "token1"
    assert "provider raised ValueError; the current token is valid for another 14 s" in caplog.text
    assert "pencil" not in caplog.text
    assert (desk.said(), desk.waiting) == ("token1", []), "not again at once"
    desk.clock.advance(10.0)
    desk.trouble = None
    assert desk.said() == "token1"
    desk.work()
    assert desk.said() == "token3"


def test_when_it_has_expired_the_failure_is_told(desk):
    desk.clock.advance(81.0)
    desk.trouble = ValueError()
    desk.said()
    desk.work()
    assert desk.said() == "token1"
    desk.clock.advance(10.0)
    desk.said()
    desk.work()
    assert desk.said() == "token1"
    desk.clock.advance(4.5)
    assert desk.said() is None, "it would be refused on its way"
    desk.work()
    with pytest.raises(SaslError, match="provider raised ValueError"):
        desk.said()


def test_the_first_failure_is_told():
    desk = Desk()
    desk.trouble = ValueError()
    assert desk.said() is None
    desk.work()
    with pytest.raises(SaslError, match="provider raised ValueError"):
        desk.said()
