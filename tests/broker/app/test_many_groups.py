"""An app with many groups: they share one network thread, and each gets every record."""

from __future__ import annotations

import json
import threading
from collections import Counter

import pytest

from broker.app.conftest import running
from lane_world import until
from multilane.app.app import App
from multilane.clock import SystemClock
from multilane.metrics.observer import NO_OBSERVER, Counts
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]
GROUPS = 5
RECORDS = 200


def network_threads() -> set[str]:
    return {thread.name for thread in threading.enumerate() if thread.name.startswith("multilane-network")}


@pytest.mark.parametrize("observer", [NO_OBSERVER, Counts()], ids=["unobserved", "observed"])
async def test_all_groups_of_an_app_share_one_network_thread(shop, observer):
    """Members, scans of backlogs (each retry partition has a record) and error consumers too."""
    shop.fill([f"k{n % 40}" for n in range(RECORDS)])
    retry = shop.make_topic(2)
    consumer = {"name": shop.main, "cluster": "main", "offsetInitial": "oldest", "retryOrder": "key"}
    groups = {f"group{n}": {**consumer, "groupId": f"{shop.main}.{n}"} for n in range(GROUPS)}
    groups["group0"] |= {"retry": retry, "retryCount": 1}
    path = shop.folder / "multilane.yaml"
    path.write_text(
        json.dumps({"clusters": {"main": {"clientId": "test", "brokers": shop.bootstrap}}, "consumers": groups})
    )
    shop.fill(["k1", "k2", "k3", "k4"], topic=retry)
    got: Counter[str] = Counter()
    app = App(path, clock=SystemClock(), observer=observer)

    for name in groups:

        @app.listener(name)
        async def handle(record: Record, name: str = name) -> None:
            got[name] += 1

    before = network_threads()
    seen: set[str] = set()

    def all_handled() -> bool:
        seen.update(network_threads() - before)
        return got.total() >= GROUPS * RECORDS

    async with running(app) as task:
        await until(lambda: all_handled() or task.done())
    await task
    assert all(got[name] >= RECORDS for name in groups)
    assert len(seen) == 1
    await until(lambda: network_threads() == before)  # it ends with the app, a moment after its last socket
