"""The demo's shop: a typical app, its configuration, and a day of made-up orders.

Thread: none (pure).

The orders are the same in every run. Most take 20 ms; some take 0.4 s, some fail once, some always fail, and some are
not orders at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

MODULE: Final = "shop"
TOPIC: Final = "orders"
RETRY: Final = "orders.retry"
ERROR: Final = "orders.error"
GROUP: Final = "shop.orders"
LANES: Final = 50
CALL_SECONDS: Final = 0.02
SLOW_SECONDS: Final = 0.4
APP: Final = f'''\
import asyncio
from dataclasses import dataclass

from multilane import App, Record

app = App("multilane.yaml")


@dataclass
class Order:
    number: int
    item: str


@app.listener("orders")
async def deliver(order: Order, record: Record) -> None:
    if order.item == "unicorn":  # never works: ends in the error topic
        raise LookupError("there are none")
    if order.item == "figs" and record.topic == "{TOPIC}":  # works later
        raise TimeoutError("sold out, try again")
    await asyncio.sleep({SLOW_SECONDS} if order.item == "piano" else {CALL_SECONDS})
'''

_SEED: Final = 2_026
_ORDERS_OF_A_CUSTOMER: Final = 20
_ITEMS: Final = ("apples", "bread", "coffee", "dates", "eggs", "grapes", "honey", "jam")
_ODD_ONES: Final = {"unicorn": 5_000, "piano": 2_000, "figs": 1_000}  # one order in this many
_NO_ORDER: Final = 10_000  # one record in this many is not even JSON


@dataclass(frozen=True, slots=True)
class Odd:
    """How many orders differ from the usual ones."""

    slow: int
    fail_once: int
    fail_always: int
    unreadable: int


def configuration(bootstrap: str, audit: str) -> str:
    """The configuration as JSON, which is also YAML."""
    consumer = {
        "groupId": GROUP,
        "name": TOPIC,
        "cluster": "demo",
        "retry": RETRY,
        "error": ERROR,
        "retryCount": 2,
        "retryOrder": "key",
        "virtualPartitionCount": LANES,
        "maxProcessingTime": "5s",
        "offsetInitial": "oldest",
        "audit": audit,
    }
    clusters = {"demo": {"clientId": "multilane-demo", "brokers": bootstrap}}
    return json.dumps({"clusters": clusters, "consumers": {TOPIC: consumer}}, indent=2)


def orders(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Pairs of customer and order."""
    random = Random(_SEED)  # noqa: S311 - made-up orders, not secrets
    customers = max(1, count // _ORDERS_OF_A_CUSTOMER)
    for number in range(count):
        key = b"customer-%05d" % random.randrange(customers)
        if _is_one_of(_NO_ORDER, number):
            yield key, b"what is an order?"
            continue
        odd = next((item for item, many in _ODD_ONES.items() if _is_one_of(many, number)), None)
        item = odd or _ITEMS[random.randrange(len(_ITEMS))]
        yield key, b'{"number":%d,"item":"%s"}' % (number, item.encode())


def odd_ones(count: int) -> Odd:
    items: dict[str, int] = dict.fromkeys(_ODD_ONES, 0)
    unreadable = 0
    for _, value in orders(count):
        if not value.startswith(b"{"):
            unreadable += 1
        elif (item := json.loads(value)["item"]) in items:
            items[item] += 1
    return Odd(items["piano"], items["figs"], items["unicorn"], unreadable)


def _is_one_of(many: int, number: int) -> bool:
    """Offset by a third of the interval, so that the kinds of odd orders do not coincide."""
    return number % many == many // 3
