"""Shared consumers without an application, against a real Kafka."""

from __future__ import annotations

import json
import logging
import threading
from collections import defaultdict
from concurrent.futures import Future

import pytest

import multilane
from broker.app.conftest import Shop
from multilane.client.admin.admin import Admin
from multilane.clock import SystemClock
from multilane.commit import completion_map
from multilane.errors import ClientClosed, ConfigError
from multilane.wire.records.record import Record

pytestmark = [pytest.mark.broker]
CLOCK = SystemClock()


class Handlers:
    def __init__(self) -> None:
        self.got: dict[str, list[int]] = defaultdict(list)
        self._more = threading.Condition()

    def of(self, name: str):
        def handle(record: Record) -> None:
            with self._more:
                self.got[name].append(record.offset)
                self._more.notify_all()

        return handle

    def wait(self, **many: int) -> None:
        with self._more:
            enough = self._more.wait_for(lambda: all(len(self.got[n]) >= m for n, m in many.items()), 60)
        assert enough, {name: len(got) for name, got in self.got.items()}


def configuration(shop: Shop, **groups: str) -> str:
    each = {
        "name": shop.main,
        "cluster": "main",
        "virtualPartitionCount": 4,
        "offsetInitial": "oldest",
        "commitInterval": "100ms",
        "sharing": "same-topic",
    }
    path = shop.folder / "pool.yaml"
    consumers = {name: {**each, "groupId": f"{shop.main}.{group}"} for name, group in groups.items()}
    consumers["alone"] = {**each, "groupId": f"{shop.main}.alone", "sharing": "off"}
    path.write_text(
        json.dumps({"clusters": {"main": {"clientId": "pool", "brokers": shop.bootstrap}}, "consumers": consumers})
    )
    return str(path)


def test_leases_share_a_consumer_until_the_last_is_released(shop):
    shop.fill(["k"] * 50, partitions=1)
    handlers = Handlers()
    with multilane.ConsumerPool(configuration(shop, a="g", b="g", c="other")) as pool:
        with pytest.raises(ConfigError, match="'alone' does not share"):
            pool.acquire("alone")
        first, second, other = (pool.acquire(name) for name in "abc")
        assert first.consumer is second.consumer is not other.consumer
        for name in "ab":
            first.consumer.subscribe(name, handlers.of(name)).result(30)
        with pytest.raises(ConfigError, match="'c' cannot share this consumer: their group differ"):
            first.consumer.subscribe("c", handlers.of("c"))
        handlers.wait(a=50, b=50)
        assert first.consumer.triggers == ("a", "b")
        engine = pool.app.engine
        assert engine is not None
        assert len(engine.groups) == 1
        first.release()
        first.release()
        assert second.consumer.triggers == ("a", "b"), "a lease counts once"
        second.release()
        assert len(engine.groups) == 0, "the last release closes it"
        again = pool.acquire("a")
        assert again.consumer is not first.consumer
        again.consumer.subscribe("a", handlers.of("a")).result(30)
        shop.fill(["k"] * 10, topic=shop.main)
        handlers.wait(a=60)
    with pytest.raises(ClientClosed):
        pool.acquire("a")
    assert sorted(handlers.got["a"]) == list(range(60))
    assert sorted(handlers.got["b"]) == list(range(50))
    with Admin({"bootstrap.servers": shop.bootstrap}) as admin:
        [at] = admin.group_offsets(f"{shop.main}.g").values()
    assert at.offset == 60
    assert completion_map.read(at.metadata, at.offset).positions.keys() == {"a"}


def test_everybody_may_start_and_stop_at_once(shop):
    """In any order, from any thread: one consumer, and each gets every record."""
    shop.fill(["k"] * 20, partitions=1)
    names = [f"t{n}" for n in range(6)]
    handlers = Handlers()
    with multilane.ConsumerPool(configuration(shop, **dict.fromkeys(names, "g"))) as pool:
        done: list[Future[None]] = []

        def come(name: str) -> None:
            lease = pool.acquire(name)
            done.append(lease.consumer.subscribe(name, handlers.of(name)))

        threads = [threading.Thread(target=come, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for future in done:
            future.result(30)
        handlers.wait(**dict.fromkeys(names, 20))
        engine = pool.app.engine
        assert engine is not None
        assert len(engine.pool.consumers) == 1
        going = [pool.app.unsubscribe(name) for name in reversed(names)]
        for future in going:
            future.result(30)
        assert len(engine.groups) == 0
    assert all(sorted(handlers.got[name]) == list(range(20)) for name in names)


def test_no_password_is_shown(shop, caplog):
    """Neither by the key, nor by what is logged, nor by what a pool shows of itself."""
    canary = "kanarienvogel-7f3a"
    shop.fill(["k"])
    path = configuration(shop, a="g", b="g")
    secrets = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "user"}
    with caplog.at_level(logging.DEBUG):
        pool = multilane.ConsumerPool(path, properties={**secrets, "sasl.password": multilane.Secret(canary)})
        with pool:
            lease = pool.acquire("a")
            texts = [
                repr(lease.consumer),
                str(lease.consumer.key),
                repr(pool.key_of("b")),
                repr(pool._leases.consumers),
            ]
            other = multilane.ConsumerPool(path, properties={**secrets, "sasl.password": multilane.Secret("another")})
            texts += other.key_of("a").differences(pool.key_of("a"))
            assert other.key_of("a") != pool.key_of("a") == pool.key_of("b")
    assert canary not in "\n".join([*texts, caplog.text])
