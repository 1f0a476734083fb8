"""Commits of groups whose coordinators take less metadata than the default, or more, or do not say how much."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from broker.app.conftest import Shop, running
from broker.timers import NEVER_STOPPED, SHORT_SESSIONS
from broker.topics import topic_factory
from lane_world import until
from multilane.app.app import App
from multilane.client.admin.admin import Admin
from multilane.commit import completion_map
from multilane.commit.sections import MOST_BYTES
from multilane.dev.kafka import KafkaCluster
from multilane.errors import ConfigError
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]

SMALL, LARGE = 600, 12_000
USER, PASSWORD = "reader", "wonder-land"
WITH_RIGHTS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}


@pytest.fixture(scope="module")
def small() -> Iterator[KafkaCluster]:
    """One user there may not read the brokers' settings."""
    properties = {"offset.metadata.max.bytes": str(SMALL), **WITH_RIGHTS, **SHORT_SESSIONS, **NEVER_STOPPED}
    with KafkaCluster(listeners=("PLAINTEXT", "SASL_PLAINTEXT"), users={USER: PASSWORD}, properties=properties) as run:
        cluster = (ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL, f"User:{USER}", "*")
        denied = AclBinding(*cluster, AclOperation.DESCRIBE_CONFIGS, AclPermissionType.DENY)
        admin = AdminClient({"bootstrap.servers": run.bootstrap()})
        for created in admin.create_acls([denied]).values():
            created.result(30)
        yield run


@pytest.fixture(scope="module")
def large() -> Iterator[KafkaCluster]:
    properties = {"offset.metadata.max.bytes": str(LARGE), **SHORT_SESSIONS, **NEVER_STOPPED}
    with KafkaCluster(properties=properties) as run:
        yield run


def triggers(shop: Shop, count: int, suffix: str = "") -> tuple[App, list[str], Counter[str]]:
    """An app of so many triggers on one topic, and how many records each has handled."""
    names = [f"trigger-{n:03}{suffix}" for n in range(count)]
    each = {
        "groupId": f"{shop.main}.group",
        "name": shop.main,
        "cluster": "main",
        "virtualPartitionCount": 2,
        "offsetInitial": "oldest",
        "commitInterval": "100ms",
        "sharing": "same-topic",
    }
    path = shop.folder / "triggers.yaml"
    cluster = {"clientId": "test", "brokers": shop.bootstrap}
    path.write_text(json.dumps({"clusters": {"main": cluster}, "consumers": dict.fromkeys(names, each)}))
    app, handled = App(path), Counter[str]()
    for name in names:

        @app.listener(name)
        async def handle(record: Record, name: str = name) -> None:
            handled[name] += 1

    return app, names, handled


def text_of(shop: Shop) -> tuple[int, str]:
    """The commit of the group's only partition."""
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        found = admin.group_offsets(f"{shop.main}.group")
    return next(((at.offset, at.metadata) for at in found.values()), (-1, ""))


def scattered(shop: Shop, **more: Any) -> tuple[App, asyncio.Event, Counter[bytes | None]]:
    """An app that settles every other record, so that its runs need more than the smaller limit has room for."""
    shop.fill([f"k{n}" for n in range(800)], partitions=1)
    app = shop.app(virtualPartitionCount=800, rebalanceTimeout="4s", maxProcessingTime="10m", **more)
    gate, handled = asyncio.Event(), Counter[bytes | None]()

    @app.listener("orders")
    async def handle(record: Record) -> None:
        if record.offset % 2 == 0:
            await gate.wait()
        handled[record.key] += 1

    return app, gate, handled


async def test_a_smaller_limit_leaves_out_runs_and_never_the_commit(small, tmp_path):
    shop = Shop(small.bootstrap(), topic_factory(small), tmp_path)
    app, gate, handled = scattered(shop)
    async with running(app) as task:
        await until(lambda: handled.total() == 400 or task.done())
        await until(lambda: completion_map.decode(text_of(shop)[1], 0))
        offset, text = text_of(shop)
        assert (offset, SMALL - 40 <= len(text) <= SMALL) == (0, True)
        gate.set()
        await until(lambda: text_of(shop)[0] == 800)
    await task


async def test_a_user_who_may_not_ask_for_the_limit_commits_all_the_same(small, tmp_path, caplog):
    shop = Shop(small.bootstrap(), topic_factory(small), tmp_path)
    login = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    app, gate, handled = scattered(shop, cluster={"brokers": small.bootstrap("SASL_PLAINTEXT"), "properties": login})
    async with running(app) as task:
        await until(lambda: handled.total() == 400 or task.done())
        await until(lambda: "takes less metadata" in caplog.text)
        gate.set()
        await until(lambda: text_of(shop)[0] == 800)
    await task
    assert caplog.text.count("takes less metadata with a commit than 4096 bytes") == 1


async def test_more_triggers_than_fit_are_refused_before_they_join(small, tmp_path):
    shop = Shop(small.bootstrap(), topic_factory(small), tmp_path)
    shop.fill(["a"], partitions=1)
    app, names, handled = triggers(shop, 30)
    room = completion_map.fitting(names, SMALL)
    assert 0 < room < 30
    with pytest.raises(ConfigError, match=rf"30 triggers .* of {room}: its metadata may have {SMALL} bytes"):
        await asyncio.wait_for(app.serve(), 60)
    assert not handled
    assert text_of(shop) == (-1, "")
    app, names, handled = triggers(shop, room)
    async with running(app) as task:
        await until(lambda: text_of(shop)[0] == 1 or task.done())
    await task
    assert completion_map.read(text_of(shop)[1], 1).positions.keys() == set(names)


async def test_a_larger_limit_lets_more_triggers_share(large, tmp_path):
    shop = Shop(large.bootstrap(), topic_factory(large), tmp_path)
    shop.fill(["a", "b"], partitions=1)
    app, names, handled = triggers(shop, 110, "-of-a-shop-with-many")
    assert completion_map.fitting(names) < 110
    async with running(app) as task:
        await until(lambda: text_of(shop)[0] == 2 or task.done())
    await task
    text = text_of(shop)[1]
    assert MOST_BYTES < len(text) <= LARGE
    assert completion_map.read(text, 2).positions.keys() == set(names)
    again, _, handled = triggers(shop, 110, "-of-a-shop-with-many")
    async with running(again) as task:
        shop.fill(["c"], topic=shop.main)
        await until(lambda: text_of(shop)[0] == 3 or task.done())
    await task
    assert handled == Counter(names), "nothing is repeated after a restart"
