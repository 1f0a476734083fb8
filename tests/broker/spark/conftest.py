"""A real Spark on this machine, started by the first test that asks, once for a session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker.spark.shop import Shop
from multilane.client.produce.producer import Producer
from multilane.spark.session import QUICK_START, start_session


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "OFF",
        **QUICK_START,
    }
    started = start_session("local[2]", "multilane tests", settings)
    yield started
    started.stop()


@pytest.fixture
def fill(kafka) -> Callable[..., None]:
    """Writes (value, key, headers, partition) into a topic."""

    def write(topic: str, records: list[tuple[Any, ...]]) -> None:
        with Producer({"bootstrap.servers": kafka.bootstrap()}) as producer:
            producer.send_many([(topic, *record) for record in records]).result(30)

    return write


@pytest.fixture
def shop(tmp_path, kafka, fill) -> Shop:
    return Shop(tmp_path / "shop", kafka.bootstrap(), fill)


@pytest.fixture
def table(spark, kafka) -> Callable[..., Any]:
    """A topic as a DataFrame."""

    def load(topic: str, *, is_stream: bool = False, **options: Any) -> Any:
        reader = (spark.readStream if is_stream else spark.read).format("multilane")
        named = {"kafka.bootstrap.servers": kafka.bootstrap(), **({"subscribe": topic} if topic else {})}
        return reader.options(**named, **options).load()

    return load
