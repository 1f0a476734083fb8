"""Statuses and codes tell errors apart; identifiers, offsets and times do not."""

from __future__ import annotations

import pytest

from multilane.outcome.error_patterns import pattern_of
from multilane.outcome.redrive import Groups
from unit.outcome.records import record

URL = "http://127.0.0.1:41873/orders/4711"


@pytest.mark.parametrize("status", ["404", "500", "503"])
@pytest.mark.parametrize(
    "text",
    [
        "HTTPError: HTTP Error {}: Internal Server Error",
        f"HTTPStatusError: Server error '{{}} Internal Server Error' for url '{URL}'",
        "HTTPError: {} Server Error: Internal Server Error",
        "ClientResponseError: {}, message='Internal Server Error'",
        "RuntimeError: HTTP {}",
        "RuntimeError: status={}",
        "RuntimeError: status code {} from the warehouse",
        "RuntimeError: the warehouse answered {}",
        "RuntimeError: the warehouse answered ({})",
        "RuntimeError: {}",
        "{}",
    ],
)
def test_a_status_stays(text, status):
    head = pattern_of(text.format(status))
    assert status in head
    assert head == pattern_of(text.format("418")).replace("418", status)


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("OSError: [Errno 111] Connection refused", "OSError: [Errno 111] Connection refused"),
        ("error code: 1205, deadlock", "error code: 1205, deadlock"),
        ("SQLSTATE 23505", "SQLSTATE 23505"),
        ("order 404 not found", "order # not found"),
        ("offset 500 is gone", "offset # is gone"),
        ("id=503", "id=#"),
        ("took 500 ms", "took # ms"),
        ("after 300 attempts", "after # attempts"),
        ("3.141 is no 500.25", "#.# is no #.#"),
        ("at 127.0.0.1:443", "at #.#.#.#:#"),
        ("at 12:30:15.123", "at #:#:#.#"),
        ("customer-404", "customer-#"),
        ("sku A500", "sku A#"),
        ("order 4711 of 1700000000000", "order # of #"),
    ],
)
def test_what_names_or_counts_goes(text, head):
    assert pattern_of(text) == head


def listed(texts):
    groups = Groups()
    for number, text in enumerate(texts):
        made = record(headers=(("X-ErrorMessage", text.encode()),))
        groups.add(made._replace(offset=number, timestamp=number))
    return [(group.pattern, group.count, group.example) for group in groups.listed()]


def test_three_statuses_are_three_kinds():
    found = listed(["E: HTTP 404", "E: HTTP 500", "E: HTTP 503", "E: HTTP 500"])
    assert [(head, count) for head, count, _ in found] == [("E: HTTP 500", 2), ("E: HTTP 404", 1), ("E: HTTP 503", 1)]


def test_too_many_statuses_are_none():
    """Three-digit numbers without a word that explains them."""
    assert listed([f"E: nothing known about {number}" for number in range(100, 400)]) == [
        ("E: nothing known about #", 300, "orders/3@299")
    ]
