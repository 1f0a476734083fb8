"""An app against the real Kafka, in the test's own event loop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lane_world import until
from multilane.app.app import App
from multilane.client.admin.admin import Admin
from multilane.client.produce.producer import Producer


class Shop:
    """Topics, a configuration over them, and what a test wants to know afterwards."""

    def __init__(self, bootstrap: str, topic: Callable[..., str], folder: Any) -> None:
        self.bootstrap = bootstrap
        self.make_topic = topic
        self.folder = folder
        self.main = ""

    def fill(self, keys: list[str | None], partitions: int = 2, topic: str | None = None) -> str:
        """A record for each key, with its number as value."""
        self.main = topic or self.make_topic(partitions)
        with Producer({"bootstrap.servers": self.bootstrap}) as producer:
            records = [(self.main, b"%d" % i, key.encode() if key is not None else None) for i, key in enumerate(keys)]
            producer.send_many(records).result(30)
        return self.main

    def app(self, *, cluster: dict[str, Any] | None = None, **consumer: Any) -> App:
        settings = {
            "clusters": {"main": {"clientId": "test", "brokers": self.bootstrap, **(cluster or {})}},
            "consumers": {
                "orders": {
                    "groupId": f"{self.main}.group",
                    "name": self.main,
                    "cluster": "main",
                    "virtualPartitionCount": 8,
                    "offsetInitial": "oldest",
                    "commitInterval": "100ms",
                    "retryBackoff": {"delay": "0s"},
                    **consumer,
                }
            },
        }
        path = self.folder / "multilane.yaml"
        path.write_text(json.dumps(settings))
        return App(path)

    def committed(self) -> dict[str, int]:
        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            found = admin.group_offsets(f"{self.main}.group")
        return {str(partition): place.offset for partition, place in found.items()}

    def read_all(self, topic: str) -> list[Any]:
        from multilane.client.consumer import Consumer

        with Consumer({"bootstrap.servers": self.bootstrap, "auto.offset.reset": "earliest"}) as consumer:
            partitions = consumer.partitions_for(topic)
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            found: list[Any] = []
            while any(consumer.position(p) < end for p, end in ends.items()):
                found += consumer.poll(5.0).records()
            return found


@asynccontextmanager
async def running(app: App) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(app.serve())
    try:
        yield task
    finally:
        app.stop()
        await asyncio.wait([task], timeout=60)


@pytest.fixture
def shop(kafka, topic, tmp_path) -> Shop:
    return Shop(kafka.bootstrap(), topic, tmp_path)


__all__ = ["Shop", "running", "until"]
