"""SIGTERM as an exception."""

from __future__ import annotations

import signal

import pytest

from multilane.cli.termination import cleaned_up


def test_sigterm_is_raised_and_its_handler_restored():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, cleaned_up():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) is before
