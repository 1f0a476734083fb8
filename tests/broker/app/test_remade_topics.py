"""Topics that are deleted and created again while an app processes them."""

from __future__ import annotations

import asyncio

import pytest

from broker.app.conftest import running
from lane_world import until
from multilane.client.admin.admin import Admin
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]
OLD, NEW = 5_000, 8_000


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
async def test_what_is_settled_of_the_old_topic_is_never_committed_for_the_new_one(shop, protocol):
    """The partition is full and paused: nothing of the new topic is read while waiting records of the old one are
    handled. A process that is killed then would leave a committed offset below which no record was handled."""
    topic = shop.fill(["a"] * OLD, partitions=1)
    app = shop.app(groupProtocol=protocol, rebalanceTimeout="4s")
    go, is_new = asyncio.Event(), asyncio.Event()
    old: list[int] = []
    new: list[int] = []
    wrong: list[tuple[int, int]] = []

    @app.listener("orders")
    async def handle(record: Record) -> None:
        (old if record.key == b"a" else new).append(record.offset)
        if record.key == b"a" and not go.is_set():
            await go.wait()
        elif record.key == b"a":
            await asyncio.wait([asyncio.ensure_future(is_new.wait())], timeout=0.002)

    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        async with running(app):
            await until(lambda: old == [0])
            await asyncio.to_thread(admin.delete_topics, [topic])
            await until(lambda: topic not in admin.topics(), 40)
            await asyncio.to_thread(admin.create_topics, {topic: 1})
            await asyncio.to_thread(shop.fill, ["new"] * NEW, topic=topic)
            go.set()
            while len(new) < NEW:
                handled = len(new)  # read first: commits may only be behind
                place = (await asyncio.to_thread(shop.committed)).get(f"{topic}-0", 0)
                if place > len(new):
                    wrong.append((place, handled))
                    is_new.set()
                    break
                if len(old) > 1_500:
                    is_new.set()  # enough of that
            await until(lambda: wrong or shop.committed() == {f"{topic}-0": NEW}, 60)
    assert wrong == [], "committed for the new topic, and how many of its records were handled by then"
    assert sorted(new) == list(range(NEW))
