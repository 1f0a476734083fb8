"""The scenarios of `bench.lanes`: partitions, lanes, the handler's input and its work.

Thread: none (pure).

A limit is lanes over latency: no lane can begin its next call before the last one has ended. If parallel-consumer or
the bare loop would do exactly the same in two scenarios, one of them names the other and it is measured once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

LATENCY: Final = 0.02
ZIPF: Final = 1.1

# The handler's input.
SINGLE: Final = "single"
RECORDS: Final = "records"
COLUMNS: Final = "columns"
THREAD: Final = "thread"  # single, and the handler is not a coroutine

# The handler's work.
SLEEP: Final = "sleep"
HTTP: Final = "http"
AIOHTTP: Final = "aiohttp"
NOTHING: Final = "nothing"


@dataclass(frozen=True, slots=True)
class Scenario:
    """`lanes` are per partition, 0 is the serial consumer; `most` bounds the rate, so that no log runs dry.

    `spreads`: one core is not enough, so it is also measured with two processes.
    `rival` and `bare` name the scenario in which parallel-consumer and the bare loop are measured for this one; None:
    no comparison.
    """

    name: str
    partitions: int = 15
    lanes: int = 20
    batch: int = 1
    shape: str = SINGLE
    work: str = SLEEP
    unique: bool = False
    hangs: bool = False
    skew: float = 0.0
    spreads: bool = False
    most: float = 20_000.0
    rival: str | None = None
    bare: str | None = None

    @property
    def lanes_in_all(self) -> int:
        return self.partitions * max(self.lanes, 1)

    @property
    def limit(self) -> float | None:
        """Records per second; None if the handler takes no time. With skewed keys the log decides."""
        if self.work == NOTHING or self.skew:
            return None
        return self.lanes_in_all * self.batch / LATENCY

    @property
    def drains(self) -> bool:
        """Skewed keys have no steady state: a fixed log is read to its end."""
        return self.skew > 0


SINGLE_20: Final = Scenario("single-15x20", rival="single-15x20", bare="single-15x20")
HTTP_20: Final = Scenario("http-15x20", work=HTTP, rival="http-15x20", bare="http-15x20")
AIOHTTP_20: Final = Scenario("aiohttp-15x20", work=AIOHTTP, bare="aiohttp-15x20")
SINGLE_200: Final = Scenario(
    "single-20x200",
    partitions=20,
    lanes=200,
    spreads=True,
    most=210_000,
    rival="single-20x200",
    bare="single-20x200",
)
BATCH: Final = Scenario(
    "batch-15x10x50",
    lanes=10,
    batch=50,
    shape=RECORDS,
    spreads=True,
    most=390_000,
    rival="batch-15x10x50",
    bare="batch-15x10x50",
)
COLUMNAR: Final = Scenario(
    "columns-15x10x50",
    lanes=10,
    batch=50,
    shape=COLUMNS,
    spreads=True,
    most=390_000,
    rival=BATCH.name,
    bare=BATCH.name,
)
UNIQUE: Final = Scenario(
    "unique-15x10x50",
    lanes=10,
    batch=50,
    shape=RECORDS,
    unique=True,
    spreads=True,
    most=390_000,
    rival=BATCH.name,
    bare=BATCH.name,
)
SKEWED: Final = Scenario("zipf-15x20", skew=ZIPF, rival="zipf-15x20")
THREADS: Final = Scenario("threads-15x20", shape=THREAD, spreads=True, rival=SINGLE_20.name, bare="threads-15x20")
NO_OP: Final = Scenario("no-op-15x20", work=NOTHING, spreads=True, most=1_000_000, rival="no-op-15x20")
HUNG: Final = Scenario("no-op-hung-key", work=NOTHING, hangs=True, most=1_000_000, rival="no-op-hung-key")
CORE: Final = Scenario("core-15", lanes=0, rival="core-15", bare="core-15")

SCENARIOS: Final = (
    CORE,
    SINGLE_20,
    THREADS,
    HTTP_20,
    AIOHTTP_20,
    SINGLE_200,
    BATCH,
    COLUMNAR,
    UNIQUE,
    SKEWED,
    NO_OP,
    HUNG,
)


@dataclass(frozen=True, slots=True)
class Published:
    """A figure from the load test in the seed's own README: its hardware, its network, an HTTP call and an index."""

    scenario: str
    rate: float
    cpu: float
    mebibytes: float


PUBLISHED: Final = (
    Published(CORE.name, 662, 0.02, 41),
    Published(SINGLE_20.name, 10_600, 0.2, 47),
    Published(BATCH.name, 220_000, 0.7, 60),
)
