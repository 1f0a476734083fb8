"""How `multilane backfill` shows what came of it: a line while it runs, then a table for people or facts for programs.

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


def line(standing: BackfillStatus) -> str:
    """How it goes."""
    left = f"{standing.remaining:,} left"
    if standing.rate > 0 and standing.remaining:
        left += f", about {_duration(standing.remaining / standing.rate)}"
    failed = f", {standing.failed:,} failed" if standing.failed else ""
    return f"{standing.records:,} records ({standing.rate:,.0f}/s){failed}; {left}"


def show(outcome: BackfillOutcome) -> None:
    """On the output stream."""
    plan, standing = outcome.plan, outcome.standing
    table = Table(title=f"{plan.topic}: {plan.begin} to {plan.end}", title_justify="left")
    for name in ("", "records", "failed", "seconds", "records/s"):
        table.add_column(name, justify="left" if not name else "right")
    rows = [("this run", standing.records, "", standing.seconds)]
    rows.append(("all runs", outcome.records, f"{standing.failed:,}", outcome.seconds))
    for name, records, failed, seconds in rows:
        table.add_row(name, f"{records:,}", failed, f"{seconds:,.1f}", f"{_rate(records, seconds):,.0f}")
    show_table(output(), table)


def facts(outcome: BackfillOutcome, state: Path) -> dict[str, Any]:
    plan, standing = outcome.plan, outcome.standing
    return {
        "consumer": plan.consumer,
        "group": plan.group,
        "topic": plan.topic,
        "from": plan.begin,
        "to": plan.end,
        "state": str(state),
        "through": outcome.is_through,
        "remaining_offsets": standing.remaining,
        "failed": standing.failed,
        "failed_list": None if outcome.failed_list is None else str(outcome.failed_list),
        "this_run": _worked(standing.records, standing.seconds),
        "all_runs": _worked(outcome.records, outcome.seconds),
    }


def tell_what_is_left(outcome: BackfillOutcome, state: Path) -> None:
    """On the error stream, one sentence for each thing; nothing when all is handled."""
    standing = outcome.standing
    if not outcome.is_through:
        typer.echo(f"ended with {standing.remaining:,} offsets left: start it again with --state {state}", err=True)
    if outcome.failed_list is not None:
        records = "1 record" if standing.failed == 1 else f"{standing.failed:,} records"
        typer.echo(f"{records} failed: listed in {outcome.failed_list}", err=True)


def _worked(records: int, seconds: float) -> dict[str, Any]:
    return {"records": records, "seconds": round(seconds, 3), "records_per_second": round(_rate(records, seconds), 1)}


def _rate(records: int, seconds: float) -> float:
    return records / seconds if seconds > 0 else 0.0


def _duration(seconds: float) -> str:
    """Roughly."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s" if minutes else f"{rest} s"
