"""How `multilane backfill` shows its result: a line while it runs, then a table for people or facts for programs.

Thread: application.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.table import Table

from multilane.cli.tables import output, show_table

if TYPE_CHECKING:
    from multilane.engines.backfill.driver import BackfillStatus
    from multilane.engines.backfill.run import BackfillOutcome


def line(status: BackfillStatus) -> str:
    """The progress of a run."""
    left = f"{status.remaining:,} left"
    if status.rate > 0 and status.remaining:
        left += f", about {_duration(status.remaining / status.rate)}"
    failed = f", {status.failed:,} failed" if status.failed else ""
    return f"{status.records:,} records ({status.rate:,.0f}/s){failed}; {left}"


def show(outcome: BackfillOutcome) -> None:
    """Writes to the output stream."""
    plan, status = outcome.plan, outcome.status
    table = Table(title=f"{plan.topic}: {plan.begin} to {plan.end}", title_justify="left")
    for name in ("", "records", "failed", "seconds", "records/s"):
        table.add_column(name, justify="left" if not name else "right")
    rows = [("this run", status.records, "", status.seconds)]
    rows.append(("all runs", outcome.records, f"{status.failed:,}", outcome.seconds))
    for name, records, failed, seconds in rows:
        table.add_row(name, f"{records:,}", failed, f"{seconds:,.1f}", f"{_rate(records, seconds):,.0f}")
    show_table(output(), table)


def facts(outcome: BackfillOutcome, state: Path) -> dict[str, Any]:
    plan, status = outcome.plan, outcome.status
    return {
        "consumer": plan.consumer,
        "group": plan.group,
        "topic": plan.topic,
        "from": plan.begin,
        "to": plan.end,
        "state": str(state),
        "through": outcome.is_through,
        "remaining_offsets": status.remaining,
        "failed": status.failed,
        "failed_list": None if outcome.failed_list is None else str(outcome.failed_list),
        "this_run": _run_facts(status.records, status.seconds),
        "all_runs": _run_facts(outcome.records, outcome.seconds),
    }


def report_unfinished(outcome: BackfillOutcome, state: Path) -> None:
    """Writes what is unfinished or failed to stderr, one sentence each; nothing when every record is handled."""
    status = outcome.status
    if not outcome.is_through:
        typer.echo(f"stopped with {status.remaining:,} offsets left: start it again with --state {state}", err=True)
    if outcome.failed_list is not None:
        records = "1 record" if status.failed == 1 else f"{status.failed:,} records"
        typer.echo(f"{records} failed: listed in {outcome.failed_list}", err=True)


def _run_facts(records: int, seconds: float) -> dict[str, Any]:
    return {"records": records, "seconds": round(seconds, 3), "records_per_second": round(_rate(records, seconds), 1)}


def _rate(records: int, seconds: float) -> float:
    return records / seconds if seconds > 0 else 0.0


def _duration(seconds: float) -> str:
    """Rounded to hours and minutes, minutes and seconds, or seconds."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
