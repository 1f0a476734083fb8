"""`multilane demo`: a real Kafka, a day of orders with the usual failures, an app on Spark, and its audit.

Thread: application.

The demo stops everything it starts. It reports each step in plain words, on a terminal and in a pipe. Its exit code is
1 when the audit proves nothing, or when the handled records differ from the written ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Final

import typer

from multilane.cli.demo_shop import APP, CALL_SECONDS, ERROR, LANES, MODULE, RETRY, SLOW_SECONDS, TOPIC, Odd
from multilane.cli.termination import cleaned_up
from multilane.clock import Clock, SystemClock

if TYPE_CHECKING:
    from rich.console import Console

    from multilane.audit.run import GroupAudit

_PATIENCE: Final = 30.0
_REPORT_EVERY: Final = 3.0  # seconds, without a terminal


@dataclass(slots=True)
class Demo:
    """One run: its console, its settings and its measurements."""

    console: Console
    folder: Path
    orders: int
    partitions: int
    clock: Clock = field(default_factory=SystemClock)
    bootstrap: str = ""
    took: float = 0.0

    @contextmanager
    def step(self, activity: str, done: Callable[[], str]) -> Iterator[None]:
        """Shows the activity, then how long it took and its result."""
        begin = self.clock.monotonic()
        if self.console.is_terminal:
            with self.console.status(f"{activity} ..."):
                yield
        else:
            yield
        self.report(begin, done)

    def report(self, begin: float, done: Callable[[], str]) -> None:
        self.took = self.clock.monotonic() - begin
        self.console.print(f"[green]{self.took:6.1f} s[/]  {done()}", highlight=False)

    def rate(self) -> str:
        return f"{self.orders / max(self.took, 1e-9):,.0f}/s"

    # --- the steps ---------------------------------------------------------------------------------------------------

    def make_topics(self) -> None:
        from multilane.client.admin.admin import Admin
        from multilane.wire.records.decode import load_kernels

        made = f"created `{TOPIC}`, `{RETRY}` and `{ERROR}`, {self.partitions} partitions each; loaded the decoder"
        with self.step("creating topics", lambda: made):
            with Admin({"bootstrap.servers": self.bootstrap}) as admin:
                admin.create_topics(dict.fromkeys((TOPIC, RETRY, ERROR), self.partitions))
            load_kernels()

    def write(self) -> Odd:
        from multilane.cli.demo_shop import odd_ones, orders
        from multilane.client.produce.producer import Producer

        with (
            self.step("writing orders", lambda: f"wrote {self.orders:,} orders, all acknowledged: {self.rate()}"),
            Producer({"bootstrap.servers": self.bootstrap}) as producer,
        ):
            producer.send_many((TOPIC, value, key) for key, value in orders(self.orders)).result(_PATIENCE)
        odd = odd_ones(self.orders)
        usual = f"{CALL_SECONDS * 1_000:.0f} ms"
        self.console.print(
            f"          {odd.slow} of them take {SLOW_SECONDS * 1_000:.0f} ms instead of {usual}, "
            f"{odd.fail_once} fail once, {odd.fail_always} always fail, {odd.unreadable} are not orders at all",
            highlight=False,
        )
        return odd

    def read_columns(self) -> int:
        """Reads everything as columns over the broker's bytes, without an object per record."""
        from multilane.client.consumer import Consumer
        from multilane.types import TopicPartition

        rows = 0
        with (
            self.step("reading as columns", lambda: f"read them as columns, for comparison: {self.rate()}"),
            Consumer({"bootstrap.servers": self.bootstrap, "auto.offset.reset": "earliest"}) as consumer,
        ):
            consumer.assign(TopicPartition(TOPIC, p) for p in range(self.partitions))
            while rows < self.orders:
                blocks = consumer.poll(_PATIENCE)
                if not blocks:
                    break
                rows += blocks.rows
        return rows

    def handle(self) -> float:
        """Handles the orders on Spark; returns the seconds this took, without the start of Spark."""
        from multilane.cli.demo_run import running, settle_all
        from multilane.cli.demo_shop import configuration
        from multilane.client.admin.admin import Admin

        (self.folder / f"{MODULE}.py").write_text(APP)
        (self.folder / "multilane.yaml").write_text(configuration(self.bootstrap, str(self.folder / "audit")))
        self._show_app()
        begin = self.clock.monotonic()
        with (
            Admin({"bootstrap.servers": self.bootstrap}) as admin,
            running(self.folder) as check,
            self._progress() as on_settled,
        ):
            seconds = settle_all(admin, check, on_settled, self.clock)
        lanes = self.partitions * LANES
        self.report(begin, lambda: f"handled them on Spark with {lanes} lanes, including Spark's start and shutdown")
        return seconds

    def audit(self) -> GroupAudit:
        from multilane.audit.run import AuditRequest, audit_group
        from multilane.config.app.loading import load_app
        from multilane.spark.session import QUICK_START

        app = load_app(self.folder / "multilane.yaml", None)
        consumer = app.consumer(TOPIC)
        with self.step("auditing", lambda: "compared the topics with the app's audit records"):
            return audit_group(AuditRequest(consumer, app.cluster(consumer.cluster), conf=QUICK_START))

    def errors(self) -> int:
        """Records in the error topic."""
        from multilane.client.admin.admin import Admin
        from multilane.types import TopicPartition

        with Admin({"bootstrap.servers": self.bootstrap}) as admin:
            ends = admin.offsets([TopicPartition(ERROR, p) for p in range(self.partitions)], "latest")
        return sum(0 if end is None else int(end.offset) for end in ends.values())

    # --- output ------------------------------------------------------------------------------------------------------

    def _show_app(self) -> None:
        from rich.panel import Panel
        from rich.syntax import Syntax

        code = Syntax(APP.rstrip(), "python", background_color="default", word_wrap=True)
        self.console.print(Panel(code, title=f"{MODULE}.py", title_align="left", expand=False, border_style="dim"))
        self.console.print(f"          $ multilane run {MODULE}:app", highlight=False)

    @contextmanager
    def _progress(self) -> Iterator[Callable[[int], None]]:
        """A progress bar; without a terminal, a line every few seconds."""
        if not self.console.is_terminal:
            yield self._progress_lines()
            return
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self.console, transient=True) as bar:
            task = bar.add_task("starting Spark", total=self.orders)

            def show(settled: int) -> None:
                description = "starting Spark" if not settled else "handling orders"
                bar.update(task, completed=settled, description=description)

            yield show

    def _progress_lines(self) -> Callable[[int], None]:
        last = self.clock.monotonic()

        def on_settled(settled: int) -> None:
            nonlocal last
            now = self.clock.monotonic()
            if settled and now - last >= _REPORT_EVERY:
                last = now
                self.console.print(f"          {settled:,} of {self.orders:,} orders handled", highlight=False)

        return on_settled


@dataclass(frozen=True, slots=True)
class DemoFinding:
    """One check and its result."""

    subject: str
    wanted: object
    found: object

    @property
    def holds(self) -> bool:
        return self.wanted == self.found


def findings(demo: Demo, odd: Odd, columns: int, made: GroupAudit, errors: int) -> list[DemoFinding]:
    """Compares what was written with what was handled."""
    read = sum(tally.read for partition, tally in made.verdict.tallies.items() if partition.topic == TOPIC)
    dead = odd.fail_always + odd.unreadable
    return [
        DemoFinding("orders read as columns", demo.orders, columns),
        DemoFinding("orders read by the app", demo.orders, read),
        DemoFinding("records in the error topic (always failing, or unreadable)", dead, errors),
        DemoFinding("audit records that agree", dead, made.verdict.total.dead),
    ]


def _show_findings(console: Console, checked: list[DemoFinding]) -> None:
    for finding in checked:
        if finding.holds:
            console.print(f"[green]     ok[/]  {finding.subject}: {finding.found:,}", highlight=False)
        else:
            console.print(f"[red]  WRONG[/]  {finding.subject}: {finding.found}, not {finding.wanted}", highlight=False)


def run(demo: Demo) -> bool:
    """Runs the demo on a running Kafka; returns whether every check passed."""
    from multilane.cli import audit_view
    from multilane.config.app.units import format_duration

    demo.make_topics()
    odd = demo.write()
    columns = demo.read_columns()
    seconds = demo.handle()
    made = demo.audit()
    audit_view.show(made, console=demo.console)
    checked = findings(demo, odd, columns, made, demo.errors())
    _show_findings(demo.console, checked)
    alone = demo.orders * CALL_SECONDS / demo.partitions
    rate = f"{demo.orders / max(seconds, 1e-9):,.0f}/s"
    demo.console.print(
        f"[bold]{demo.orders:,} orders in {seconds:.1f} s: {rate}.[/] With one worker per partition "
        f"({demo.partitions}) it would take {format_duration(round(alone))} (computed, not measured: "
        f"{demo.orders:,} calls of {CALL_SECONDS * 1_000:.0f} ms / {demo.partitions}).",
        highlight=False,
    )
    return all(finding.holds for finding in checked) and audit_view.is_proved(made, exactly_once=False)


def _require_spark() -> None:
    """Fails now, rather than after Kafka has started and the orders are written."""
    from importlib.util import find_spec

    from multilane.errors import SparkStartError
    from multilane.java import find_java

    if find_spec("pyspark") is None:
        raise SparkStartError('the demo runs on Spark, and pyspark is not installed: pip install "multilane[spark]"')
    find_java()


def demo(
    orders: Annotated[int, typer.Option(min=1, help="Number of orders.")] = 100_000,
    partitions: Annotated[int, typer.Option(min=1, max=100, help="Partitions per topic.")] = 4,
) -> None:
    """Start Kafka, write orders with the usual failures, handle them on Spark, audit the result, and clean up."""
    from rich.console import Console

    from multilane.cli.progress import fetching
    from multilane.cli.spark_options import quiet_libraries
    from multilane.dev.kafka import KafkaCluster

    _require_spark()
    # librdkafka complains while brokers start; errors that matter to the reader are raised.
    logging.getLogger("multilane").addHandler(logging.NullHandler())
    quiet_libraries()
    with cleaned_up(), TemporaryDirectory(prefix="multilane-demo-") as folder:
        shown = Demo(Console(soft_wrap=True), Path(folder), orders, partitions)
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
        shown.console.print("[red]Some checks failed: see above.[/]")
        raise typer.Exit(1)
    shown.console.print(f"[green]No order was lost, and each customer's stayed in order.[/] {took:.1f} s in all.")
