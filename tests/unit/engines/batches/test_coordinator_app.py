"""An app in batches: what one consumer or partition lacks does not stop the others."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from multilane.client.fetch.offsets import PartlyFound
from multilane.clock import SystemClock
from multilane.commit.completion_map import LogIdentity, encode
from multilane.commit.ledger import CommitPoint
from multilane.engines.batches.coordinator_app import CoordinatorApp, CoordinatorGroup
from multilane.engines.batches.lease_table import LeaseTable
from multilane.engines.batches.messages import FromWorker, PartitionLease, TaskLease
from multilane.engines.batches.worker_app import LeaseWorkerApp
from multilane.listeners.context import MEMBER
from multilane.runtime.shared_lanes import grouped
from multilane.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from multilane.wire.records.record import Record

APP = """
from multilane.app.app import App
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


@pytest.fixture
def shared(target, tmp_path):
    """The same, but both are triggers of one topic and group."""
    config = tmp_path / "multilane.yaml"
    told = json.loads(config.read_text())
    for keys in told["consumers"].values():
        keys |= {"groupId": "shop", "name": "orders", "sharing": "same-topic"}
    config.write_text(json.dumps(told))
    return target


def test_triggers_have_the_lease_and_the_member_of_the_group_that_they_share(shared):
    async def found() -> tuple[dict[str, float], list[tuple[str, ...]]]:
        app = CoordinatorApp(shared)
        lane_factories = app._app.lane_factories(app._news)
        app._groups = [
            CoordinatorGroup(lanes, LeaseTable(SystemClock()), SystemClock(), app._news)
            for lanes in grouped(lane_factories, app._app.config, SystemClock())
        ]
        app._groups[0]._consumer = Expelled()
        return app.lease_seconds(), [tuple(group.consumers) for group in app._groups]

    assert asyncio.run(found()) == ({"orders": 0.0, "bills": 0.0}, [("orders", "bills")])


def test_a_lease_of_a_trigger_that_is_revoked_before_it_begins_takes_the_others_with_it(shared):
    """They are revoked in a moment, too; and with a retry partition beside one of them, nothing could begin."""
    sent = []
    points = {TopicPartition("orders", 0): CommitPoint(7, 0, ())}

    async def serve() -> list[PartitionLease]:
        app = LeaseWorkerApp(shared)
        await app.open(lambda kind, **fields: sent.append((kind, fields)))
        leases = tuple(PartitionLease(n, name, points) for n, name in enumerate(("orders", "bills"), 1))
        try:
            serving = asyncio.create_task(app.serve(TaskLease(1, 0.0, 0.0, leases)))
            revoking = asyncio.create_task(app.revoke(2, 1.0))
            await revoking
            return await serving
        finally:
            await app.close()

    assert asyncio.run(serve()) == []
    [returned] = [fields["units"] for kind, fields in sent if kind == FromWorker.RETURN]
    assert [unit["number"] for unit in returned] == [1, 2]


class Expelled:
    """A member that its coordinator has not answered for longer than its session."""

    fenced_after = 0.0


def test_a_worker_stops_only_for_the_consumer_whose_lease_is_over(target):
    async def shut() -> dict[str, bool]:
        app = LeaseWorkerApp(target)
        await app.open(lambda kind, **fields: None)
        try:
            now = SystemClock().monotonic()
            names = list(app._consumers)
            app.renew(dict(zip(names, (now - 1.0, now + 60.0), strict=True)))
            return {name: app._consumers[name].lane_factory.fence.check() for name in names}
        finally:
            await app.close()

    assert asyncio.run(shut()) == {"orders": True, "bills": False}


def test_the_context_of_a_leased_record_names_the_member_that_leases_it_out(target):
    """It had no member in workers of this flow."""

    async def named() -> list[dict[str, str | None]]:
        app = LeaseWorkerApp(target)
        await app.open(lambda kind, **fields: None)
        try:
            found = []
            for members in ({"orders": "m-1", "bills": "m-2"}, {"orders": "m-3"}):
                await app.serve(TaskLease(1, 0.0, 0.0, (), members))
                chains = {name: work.lane_factory._chain for name, work in app._consumers.items()}
                record = Record("t", 0, 0, 0, 0, None, None)
                found.append({name: chain.enter(record).context.get(MEMBER) for name, chain in chains.items()})
            return found
        finally:
            await app.close()

    assert asyncio.run(named()) == [{"orders": "m-1", "bills": "m-2"}, {"orders": "m-3", "bills": None}]


def test_a_group_that_is_not_answered_shortens_no_other_lease(target):
    async def leases() -> dict[str, float]:
        app = CoordinatorApp(target)
        lane_factories = app._app.lane_factories(app._news)
        lease_table = LeaseTable(SystemClock())
        app._groups = [
            CoordinatorGroup(lane_factory, lease_table, SystemClock(), app._news)
            for lane_factory in lane_factories.values()
        ]
        app._groups[0]._consumer = Expelled()
        return app.lease_seconds()

    granted = asyncio.run(leases())
    assert granted["orders"] == 0.0
    assert granted["bills"] > 0.0


class HalfThere:
    """A consumer whose first partition has no leader."""

    def __init__(self, led: TopicPartition) -> None:
        self._found = {led: OffsetAndTimestamp(50, -1, 3)}

    async def end_offsets(self, partitions, timeout):
        raise PartlyFound("timed out while looking up the offsets of orders[0]", self._found)


def test_a_partition_without_a_leader_keeps_no_other_from_being_committed(target, caplog):
    away, led = TopicPartition("orders", 0), TopicPartition("orders", 1)
    news = {away: OffsetAndMetadata(40), led: OffsetAndMetadata(50)}

    async def committed():
        app = CoordinatorApp(target)
        lane_factory = app._app.lane_factories(app._news)["orders"]
        lease_table = LeaseTable(SystemClock())
        group = CoordinatorGroup(lane_factory, lease_table, SystemClock(), app._news)
        group._consumer = consumer = HalfThere(led)
        sound = await group._within_logs(news)
        assert not await group._note_ends(consumer, [away, led])
        return sound, {p.partition: end for (_, p), end in lease_table._ends.items()}

    sound, ends = asyncio.run(committed())
    assert sound == {led: news[led]}
    assert ends[1] == 50
    assert ends[0] > 1 << 60, "a worker that reads it finds out"
    assert "a worker reports" not in caplog.text, "it may be right"


class Ended:
    """A consumer whose logs end at 50."""

    async def end_offsets(self, partitions, timeout):
        return dict.fromkeys(partitions, 50)


def test_runs_that_a_worker_reports_beyond_the_end_of_the_log_are_not_committed(target, caplog):
    """Even if its offset is not beyond: the log grows, and its next records would be skipped."""
    honest, wrong = TopicPartition("orders", 0), TopicPartition("orders", 1)
    news = {
        honest: OffsetAndMetadata(40, 3, encode(40, [(42, 49)], LogIdentity(3))),
        wrong: OffsetAndMetadata(40, 3, encode(40, [(42, 44), (48, 50)], LogIdentity(3))),
    }

    async def committed():
        app = CoordinatorApp(target)
        lane_factory = app._app.lane_factories(app._news)["orders"]
        group = CoordinatorGroup(lane_factory, LeaseTable(SystemClock()), SystemClock(), app._news)
        group._consumer = Ended()
        return await group._within_logs(news)

    assert asyncio.run(committed()) == {honest: news[honest]}
    assert "orders-1: a worker reports offset 51, but the log ends at 50: not committed" in caplog.text
