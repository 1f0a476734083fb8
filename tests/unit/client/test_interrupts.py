"""Ctrl-C is deferred until the callbacks are done."""

from __future__ import annotations

import signal
import threading

import pytest

from multilane.client.produce.interrupts import deferred_interrupts


def test_an_interrupt_comes_when_the_callbacks_are_done():
    done = []

    def callbacks() -> None:
        with deferred_interrupts():
            signal.raise_signal(signal.SIGINT)
            done.append("the rest of the callback")

    with pytest.raises(KeyboardInterrupt):
        callbacks()
    assert done == ["the rest of the callback"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_thread_leaves_the_handler_alone():
    seen = []

    def work() -> None:
        with deferred_interrupts():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.default_int_handler]
