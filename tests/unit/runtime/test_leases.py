"""Leases of an app in batches: each consumer has its own, in the lender's hands and in the worker's."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from multilane.clock import SystemClock
from multilane.runtime.kept_app import KeptApp, KeptGroup
from multilane.runtime.leased_app import LeasedApp
from multilane.spark.batches.board import Board

APP = """
from multilane.runtime.app import App
app = App({path!r})
@app.listener("orders")
async def take_orders(record): ...
@app.listener("bills")
async def take_bills(record): ...
"""


@pytest.fixture
def target(tmp_path, monkeypatch):
    """An app with two consumers, whose brokers are down."""
    told = {
        "clusters": {"main": {"clientId": "shop", "brokers": "127.0.0.1:1"}},
        "consumers": {name: {"groupId": name, "name": name, "cluster": "main"} for name in ("orders", "bills")},
    }
    (tmp_path / "multilane.yaml").write_text(json.dumps(told))
    (tmp_path / "leased_shop.py").write_text(APP.format(path=str(tmp_path / "multilane.yaml")))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "leased_shop:app"
    sys.modules.pop("leased_shop", None)


class Expelled:
    """A member that its coordinator has not answered for longer than its session."""

    fenced_after = 0.0


def test_a_worker_stops_only_for_the_consumer_whose_lease_is_over(target):
    async def shut() -> dict[str, bool]:
        app = LeasedApp(target)
        await app.open(lambda kind, **fields: None)
        try:
            now = SystemClock().monotonic()
            names = list(app._desks)
            app.renew(dict(zip(names, (now - 1.0, now + 60.0), strict=True)))
            return {name: app._desks[name].outfit.fence.check() for name in names}
        finally:
            await app.close()

    assert asyncio.run(shut()) == {"orders": True, "bills": False}


def test_a_group_that_is_not_answered_shortens_no_other_lease(target):
    async def leases() -> dict[str, float]:
        app = KeptApp(target)
        outfits = app._app.outfits(app._news)
        board = Board(SystemClock())
        app._groups = {n: KeptGroup(n, outfit, board, SystemClock(), app._news) for n, outfit in outfits.items()}
        app._groups["orders"]._consumer = Expelled()
        return app.leases()

    granted = asyncio.run(leases())
    assert granted["orders"] == 0.0
    assert granted["bills"] > 0.0
