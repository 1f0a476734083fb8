"""How `multilane top` shows failures, and the triggers that share a group: a line each, the largest lag first.

Thread: application.

Names and errors come from anywhere: they are truncated, and control characters are escaped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rich.console import JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from multilane.cli.foreign_text import escaped, moment
from multilane.cli.top_cells import rate_text, state, until_drained
from multilane.group.comparison import GroupReport, Movement, PartitionRow

MOST_TRIGGERS: Final = 12  # on a screen
_LONGEST_NAME: Final = 100
_LONGEST_ERROR: Final = 200
_URGENCY: Final = {movement: place for place, movement in enumerate(Movement)}
_COLUMNS: Final = ("trigger", "lag", "settled beyond", "settled/s", "drained", "failing/s", "")
_LEFT: Final = ("trigger", "")


# --- failures --------------------------------------------------------------------------------------------------------


def fails(report: GroupReport) -> bool:
    own = report.failures.are_there or bool(report.app and (report.app.rate or report.app.is_paused))
    return own or any(map(fails, report.triggers))


def failing(report: GroupReport) -> str:
    """Of a shared group, the sum over its triggers."""
    each = (report, *report.triggers)
    dead = _sum([one.failures.dead for one in each])
    to_error_topic = f", {rate_text(dead)}/s to the error topic" if dead else ""
    paused = "PAUSED by an outage, " if any(one.app is not None and one.app.is_paused for one in each) else ""
    return f"{paused}FAILING {rate_text(_sum([failure_rate(one) for one in each]))}/s{to_error_topic}"


def failure_rate(report: GroupReport) -> float | None:
    """The app's own count if known, because it includes failures that leave no copy."""
    app = report.app
    return report.failures.rate if app is None or app.rate is None else app.rate


def errors_of(report: GroupReport, most: int) -> list[str]:
    """The most frequent current errors: as the app reports them, else from the newest copies."""
    if report.app is not None and report.app.errors:
        found, where = report.app.errors, "in the app"
    elif report.failures.are_there:
        found, where = report.failures.errors, "of the newest copies"
    else:
        return []
    return [f"error: {escaped(text, _LONGEST_ERROR)} ({count:,} {where})" for text, count in found[:most]]


def _sum(rates: list[float | None]) -> float | None:
    known = [rate for rate in rates if rate is not None]
    return sum(known) if known else None


# --- triggers --------------------------------------------------------------------------------------------------------


def lines_of_triggers(report: GroupReport, most: int) -> int:
    """A heading, a line each, their top errors, and a line that counts those left out."""
    shown = report.triggers[:most]
    return bool(shown) + sum(1 + len(errors_of(one, 1)) for one in shown) + (len(report.triggers) > most)


def parts_of_triggers(report: GroupReport, most: int) -> Iterator[RenderableType]:
    shown, left_out = report.triggers[:most], report.triggers[most:]
    if shown:
        yield _table(shown)
    for trigger in shown:
        name = escaped(trigger.snapshot.subject.name, _LONGEST_NAME)
        for error in errors_of(trigger, 1):
            yield Text(f"    {name}: {error}", style="yellow", no_wrap=True, overflow="ellipsis")
    if left_out:
        text = f"  and {len(left_out)} more triggers, with a lag of at most {left_out[0].lag:,}"
        yield Text(text, style="dim", no_wrap=True, overflow="ellipsis")


def _table(triggers: tuple[GroupReport, ...]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in _COLUMNS:
        side: JustifyMethod = "left" if name in _LEFT else "right"
        heading = f"  {name}" if name == "trigger" else name
        table.add_column(heading, justify=side, no_wrap=True, overflow="ellipsis")
    for trigger in triggers:
        table.add_row(*map(Text, _cells(trigger)))
    return table


def _cells(trigger: GroupReport) -> tuple[str, ...]:
    return (
        f"  {escaped(trigger.snapshot.subject.name, _LONGEST_NAME)}",
        f"{trigger.lag:,}" if _is_known(trigger) else "-",
        f"{trigger.beyond:,}",
        rate_text(trigger.settled_rate),
        until_drained(trigger.lag, trigger.drain),
        rate_text(failure_rate(trigger)),
        _state(trigger),
    )


def _is_known(trigger: GroupReport) -> bool:
    return any(row.lag is not None for row in trigger.rows)


def _state(trigger: GroupReport) -> str:
    """That of its most urgent partition."""
    since = trigger.snapshot.absent_since
    if since is not None:
        return f"not running since {moment(since * 1_000)}"
    if trigger.app is not None and trigger.app.is_paused:
        return "paused by an outage"
    if not trigger.rows:
        return ""
    row: PartitionRow = min(trigger.rows, key=lambda row: (_URGENCY[row.verdict], -(row.lag or 0)))
    place = f" in {escaped(row.partition.topic, _LONGEST_NAME)}/{row.partition.partition}"
    return state(row) + ("" if row.verdict in (Movement.MOVING, Movement.DONE) else place)
