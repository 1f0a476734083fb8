"""A Kafka for the conformance suite, and engines that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from broker.timers import NEVER_STOPPED, SHORT_SESSIONS
from conformance.cases import Case
from conformance.engine import ENGINES, EitherEngine, ProcessEngine
from conformance.runs import Run
from multilane.dev.kafka import KafkaCluster


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster(properties=SHORT_SESSIONS | NEVER_STOPPED) as started:
        yield started


# With Spark each member has a JVM to start, and in batches a coordinator too: two cores have enough with one of them.
# In every run an app is handed over from engine to engine (test_engines.py); the rest is of `make test-long`.
_WITH_SPARK = ("spark]", "batches]")
_PATIENCE = 600.0  # for a run of the matrix, which is made by the first test that looks at it


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent not in item.path.parents:
            continue
        if item.name.endswith("sharing]") and item.path.name != "test_matrix.py":
            item.add_marker(pytest.mark.long)
        if item.name.endswith(_WITH_SPARK):
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(_PATIENCE))


def _runs(engine: ProcessEngine, kafka: KafkaCluster) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(cases: Sequence[Case], on: KafkaCluster | None = None) -> Run:
        made.append(Run(engine, (on or kafka).bootstrap(), cases))
        return made[-1]

    yield make
    engine.put_away()
    for one in made:
        one.close()


@pytest.fixture(params=ENGINES)
def run(request: pytest.FixtureRequest, kafka: KafkaCluster, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """`run(cases)`: a run on an engine, whose members are gone at the end of the test."""
    yield from _runs(ENGINES[request.param](tmp_path), kafka)


@pytest.fixture
def run_on_either(kafka: KafkaCluster, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """The same with members of both engines: their names say of which."""
    yield from _runs(EitherEngine(tmp_path), kafka)
