"""A Kafka for the conformance suite, and engines that end with their test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from conformance.cases import Case
from conformance.engine import ENGINES
from conformance.runs import SHORT_SESSIONS, Run
from multilane.dev.kafka import KafkaCluster


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaCluster]:
    with KafkaCluster(properties=SHORT_SESSIONS) as started:
        yield started


@pytest.fixture(params=ENGINES)
def run(request: pytest.FixtureRequest, kafka: KafkaCluster, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """`run(cases)`: a run on an engine, whose members are gone at the end of the test."""
    engine = ENGINES[request.param](tmp_path)
    made: list[Run] = []

    def make(cases: Sequence[Case], on: KafkaCluster | None = None) -> Run:
        made.append(Run(engine, (on or kafka).bootstrap(), cases))
        return made[-1]

    yield make
    engine.put_away()
    for one in made:
        one.close()
