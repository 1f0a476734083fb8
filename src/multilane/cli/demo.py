"""`multilane demo`: a real Kafka, a million orders in, out as columns, as objects and on lanes, and proof of it all.

Thread: application.

Everything the demo starts ends with it. It says what happened in plain words, on a terminal and in a pipe, and its exit
code is 1 when what was read is not what was written.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Final

import typer

from multilane.clock import Clock, SystemClock
from multilane.errors import MultilaneError

if TYPE_CHECKING:
    from rich.console import Console

    from multilane.cli.demo_lanes import Seen
    from multilane.cli.orders import Tally
    from multilane.client.blocks import Blocks
    from multilane.client.consumer import Consumer
    from multilane.client.produce.delivery import Deliveries
    from multilane.types import TopicPartition
    from multilane.wire.records.block import Block

TOPIC: Final = "orders"
_PATIENCE: Final = 30.0
_SHOWN: Final = 5


@dataclass(slots=True)
class Demo:
    """One run: where it speaks, and what it has measured."""

    console: Console
    records: int
    partitions: int
    clock: Clock = field(default_factory=SystemClock)
    bootstrap: str = ""
    took: float = 0.0

    @contextmanager
    def step(self, doing: str, done: Callable[[], str]) -> Iterator[None]:
        """Says what is going on, then how long it took and what came of it."""
        begin = self.clock.monotonic()
        if self.console.is_terminal:
            with self.console.status(f"{doing} ..."):
                yield
        else:
            yield
        self.took = self.clock.monotonic() - begin
        self.console.print(f"[green]{self.took:6.1f} s[/]  {done()}", highlight=False)

    def rate(self) -> str:
        return f"{self.records / max(self.took, 1e-9):,.0f} records/s"

    # --- the steps ---------------------------------------------------------------------------------------------------

    def write(self, tally: Tally) -> Deliveries:
        from multilane.cli.orders import orders
        from multilane.client.produce.producer import Producer

        with (
            self.step("writing orders", lambda: f"wrote {self.records:,} orders, acknowledged: {self.rate()}"),
            Producer({"bootstrap.servers": self.bootstrap}) as producer,
        ):
            sent = producer.send_many((TOPIC, value, key) for key, value in orders(self.records, tally))
            producer.flush()
            return sent.result()

    def read_columns(self) -> list[Block]:
        """All of it as columns over the bytes that came from the broker; no object per record."""
        found: list[Block] = []
        with (
            self.step("reading into columns", lambda: f"read them as columns: {self.rate()}"),
            self._consumer() as consumer,
        ):
            for blocks in self._polls(consumer):
                found += blocks
        return found

    def read_records(self, tally: Tally) -> None:
        """All of it again, as one Python object per record."""
        with (
            self.step("reading as objects", lambda: f"read them as Record objects, and summed each: {self.rate()}"),
            self._consumer() as consumer,
        ):
            for blocks in self._polls(consumer):
                tally.add((record.key, record.value) for record in blocks.records())

    def handle_on_lanes(self) -> Seen:
        """All of it once more, by an app: a function is called for each order, many at once."""
        from multilane.cli.demo_lanes import LANES, handle_on_lanes

        lanes = LANES * self.partitions
        with self.step("handling on lanes", lambda: f"handled them on {lanes} lanes, in order per key: {self.rate()}"):
            return handle_on_lanes(self.bootstrap, TOPIC, self.records)

    def _consumer(self) -> Consumer:
        from multilane.client.consumer import Consumer
        from multilane.types import TopicPartition

        consumer = Consumer({"bootstrap.servers": self.bootstrap, "auto.offset.reset": "earliest"})
        consumer.assign(TopicPartition(TOPIC, p) for p in range(self.partitions))
        return consumer

    def _polls(self, consumer: Consumer) -> Iterator[Blocks]:
        """Until as many rows came as were written, or nothing came for a long while."""
        rows = 0
        while rows < self.records:
            blocks = consumer.poll(_PATIENCE)
            if not blocks:
                return
            rows += blocks.rows
            yield blocks


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked."""

    what: str
    wanted: object
    found: object

    @property
    def holds(self) -> bool:
        return self.wanted == self.found


def lane_findings(written: Tally, seen: Seen) -> list[Finding]:
    """What was written against what the app's function saw."""
    return [
        Finding("orders handled on lanes", written.records, seen.tally.records),
        Finding("checksum of what was handled", written.checksum, seen.tally.checksum),
        Finding("orders of a customer out of order", 0, seen.out_of_order),
        Finding("orders that failed once and were tried again", seen.failed, sum(n > 1 for n in seen.tries.values())),
    ]


def findings(written: Tally, delivered: Deliveries, columns: list[Block], objects: Tally) -> list[Finding]:
    """What was written against what was read, in both ways of reading."""
    from multilane.cli.orders import Tally

    in_columns = Tally()
    for block in columns:
        in_columns.add(zip(block.keys.to_pylist(), block.values.to_pylist(), strict=True))
    counts = {p: w.records for p, w in delivered.partitions.items()}
    return [
        Finding("records acknowledged", written.records, delivered.records),
        Finding("records in columns", written.records, in_columns.records),
        Finding("records as objects", written.records, objects.records),
        Finding("records of each partition", counts, dict(_counts(columns))),
        Finding("checksum of the columns", written.checksum, in_columns.checksum),
        Finding("checksum of the objects", written.checksum, objects.checksum),
        Finding("gaps or repeats in the offsets", 0, _breaks(columns)),
    ]


def _counts(columns: list[Block]) -> Counter[TopicPartition]:
    from multilane.types import TopicPartition

    counts: Counter[TopicPartition] = Counter()
    for block in columns:
        counts[TopicPartition(block.topic, block.partition)] += len(block)
    return counts


def _breaks(columns: list[Block]) -> int:
    """Places where a partition's offsets do not go on by one."""
    expected: Counter[int] = Counter()
    breaks = 0
    for block in columns:
        if len(block):
            breaks += int((block.offsets[1:] - block.offsets[:-1] != 1).sum())
            breaks += block.first_offset != expected[block.partition]
            expected[block.partition] = block.next_offset
    return breaks


# --- what is shown ---------------------------------------------------------------------------------------------------


def _show_records(console: Console, columns: list[Block]) -> None:
    from rich.table import Table

    table = Table(title="The first records", title_justify="left")
    for name in ("partition", "offset", "key", "value"):
        table.add_column(name, justify="right" if name in ("partition", "offset") else "left", no_wrap=True)
    for record in columns[0].slice(0, _SHOWN).records():
        key, value = (record.key or b"").decode(), (record.value or b"").decode()
        table.add_row(str(record.partition), str(record.offset), key, value)
    console.print(table)


def _show_partitions(console: Console, columns: list[Block]) -> None:
    from rich.table import Table

    table = Table(title="Where they are: a key always goes to the same partition", title_justify="left")
    table.add_column("partition", justify="right")
    table.add_column("records", justify="right")
    table.add_column("blocks", justify="right")
    blocks = Counter(block.partition for block in columns)
    for partition, count in sorted(_counts(columns).items()):
        table.add_row(str(partition.partition), f"{count:,}", f"{blocks[partition.partition]:,}")
    console.print(table)


def _group_by(demo: Demo, columns: list[Block]) -> list[tuple[str, int]]:
    """Arrow counts orders per customer where the bytes are: the column of keys is a view over what was received."""
    import pyarrow as pa

    with demo.step("counting per customer", lambda: f"counted orders per customer with Arrow, no copy: {demo.rate()}"):
        keys = pa.chunked_array([block.keys for block in columns])
        grouped = pa.table({"customer": keys}).group_by("customer").aggregate([([], "count_all")])
        counts = zip(grouped["customer"].to_pylist(), grouped["count_all"].to_pylist(), strict=True)
        return sorted(((key.decode(), count) for key, count in counts), key=lambda row: (-row[1], row[0]))[:_SHOWN]


def _show_customers(console: Console, top: list[tuple[str, int]]) -> None:
    from rich.table import Table

    table = Table(title="Who orders most", title_justify="left")
    table.add_column("customer")
    table.add_column("orders", justify="right")
    for customer, count in top:
        table.add_row(customer, f"{count:,}")
    console.print(table)


def _show_findings(console: Console, checked: list[Finding]) -> None:
    for finding in checked:
        if finding.holds:
            shown = f": {finding.found:,}" if isinstance(finding.found, int) else ""
            console.print(f"[green]     ok[/]  {finding.what}{shown}", highlight=False)
        else:
            console.print(f"[red]  WRONG[/]  {finding.what}: {finding.found}, not {finding.wanted}", highlight=False)


# --- the command -----------------------------------------------------------------------------------------------------


def run(demo: Demo) -> bool:
    """The demo on a Kafka that is there; whether everything was right."""
    from multilane.cli.orders import Tally
    from multilane.client.admin.admin import Admin
    from multilane.wire.records.decode import load_kernels

    written, objects = Tally(), Tally()
    made = f"made the topic `{TOPIC}` with {demo.partitions} partitions, loaded the decoder"
    with demo.step("making the topic", lambda: made):
        with Admin({"bootstrap.servers": demo.bootstrap}) as admin:
            admin.create_topics({TOPIC: demo.partitions, f"{TOPIC}.retry": demo.partitions})
        load_kernels()
    delivered = demo.write(written)
    columns = demo.read_columns()
    if not columns:
        raise MultilaneError(f"nothing was read within {_PATIENCE:.0f} s although {delivered.records:,} were written")
    _show_records(demo.console, columns)
    _show_partitions(demo.console, columns)
    _show_customers(demo.console, _group_by(demo, columns))
    demo.read_records(objects)
    checked = findings(written, delivered, columns, objects)
    columns.clear()
    checked += lane_findings(written, demo.handle_on_lanes())
    _show_findings(demo.console, checked)
    return all(finding.holds for finding in checked)


def demo(
    records: Annotated[int, typer.Option(min=1, help="How many orders.")] = 1_000_000,
    partitions: Annotated[int, typer.Option(min=1, max=100, help="Partitions of the topic.")] = 4,
) -> None:
    """Start a Kafka, write a million orders, read them as columns, as objects and on lanes, compare, and clean up."""
    from rich.console import Console

    from multilane.cli.progress import fetching
    from multilane.dev.kafka import KafkaCluster

    # Brokers that are just starting make librdkafka complain; what matters to a reader is raised.
    logging.getLogger("multilane").addHandler(logging.NullHandler())
    shown = Demo(Console(soft_wrap=True), records, partitions)
    cluster = KafkaCluster(progress=fetching)
    begin = shown.clock.monotonic()
    try:
        with shown.step("starting Apache Kafka", lambda: f"Apache Kafka is running on {cluster.bootstrap()}"):
            cluster.start_all()
        shown.bootstrap = cluster.bootstrap()
        right = run(shown)
    finally:
        cluster.close()
    took = shown.clock.monotonic() - begin
    if not right:
        shown.console.print("[red]What was read is not what was written.[/]")
        raise typer.Exit(1)
    shown.console.print(f"[green]Everything that was written was read, once and unchanged.[/] {took:.1f} s in all.")
