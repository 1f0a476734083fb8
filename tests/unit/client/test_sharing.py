"""Which clients share a network thread, and until when it runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from multilane.client.sharing import ThreadTable
from multilane.clock import ManualClock, SystemClock
from multilane.config.connection import ConnectionConfig, parse_connection
from multilane.metrics.observer import NO_OBSERVER, Counts, Observer


class OwnTime(SystemClock):
    """Nobody knows whether it shows the machine's time."""


class CountOnly:
    def count(self, name: str, value: float = 1, **labels: str) -> None:
        pass


@pytest.fixture
def table() -> Iterator[ThreadTable]:
    table = ThreadTable()
    yield table
    for shared in table._threads.values():
        shared.thread.stop()


def config(**properties: object) -> ConnectionConfig:
    return parse_connection({"bootstrap.servers": "127.0.0.1:1, 127.0.0.1:2", **properties})


def test_all_system_clocks_and_no_clock_are_the_same(table):
    leases = [table.acquire(config(), clock) for clock in (None, SystemClock(), SystemClock())]
    assert len({lease.thread for lease in leases}) == 1


def test_clients_of_one_app_pass_one_clock_and_one_observer(table):
    clock, observer = SystemClock(), Counts()
    leases = [table.acquire(config(), clock, observer) for _ in range(5)]
    assert len({lease.thread for lease in leases}) == 1


def test_no_observer_and_the_default_one_are_the_same(table):
    assert table.acquire(config()).thread is table.acquire(config(), observer=NO_OBSERVER).thread


def test_brokers_in_another_order_are_the_same(table):
    turned = config(**{"bootstrap.servers": "127.0.0.1:2,127.0.0.1:1"})
    assert table.acquire(config()).thread is table.acquire(turned).thread


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param((None, None), (ManualClock(), None), id="a clock that a test moves"),
        pytest.param((ManualClock(), None), (ManualClock(), None), id="two clocks that show the same"),
        pytest.param((None, None), (OwnTime(), None), id="a clock of the application's"),
        pytest.param((None, None), (None, Counts()), id="an observer and none"),
        pytest.param((None, Counts()), (None, Counts()), id="two observers"),
        pytest.param((None, CountOnly()), (None, CountOnly()), id="two observers with one method"),
    ],
)
def test_any_other_clock_or_observer_has_a_thread_of_its_own(table, first, second):
    assert table.acquire(config(), *first).thread is not table.acquire(config(), *second).thread


def test_an_observer_with_one_method_has_one_thread(table):
    observer: Observer = CountOnly()  # type: ignore[assignment]
    assert table.acquire(config(), None, observer).thread is table.acquire(config(), None, observer).thread


def test_other_credentials_have_a_thread_of_their_own(table):
    sasl = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "a"}
    one, other = (config(**sasl, **{"sasl.password": password}) for password in ("one", "other"))
    assert table.acquire(one).thread is not table.acquire(other).thread


def test_the_thread_stops_with_its_last_client(table):
    first, second = table.acquire(config(), SystemClock()), table.acquire(config(), SystemClock())
    assert first.release() is None
    assert first.release() is None, "only the first release counts"
    ended = second.release()
    assert ended is not None
    ended.result(30)
    assert table.acquire(config(), SystemClock()).thread is not first.thread
