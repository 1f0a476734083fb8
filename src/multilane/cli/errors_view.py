"""How `multilane errors` shows its result: tables for people, plain facts for programs.

Thread: application.

`foreign_text` makes all record contents safe to print.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from multilane.cli.foreign_text import by_line, escaped, moment, payload
from multilane.cli.tables import output, show_line, show_table
from multilane.outcome.failure_headers import error_in, origin_in, target_in
from multilane.outcome.headers import ERROR_STACK, error_stack

if TYPE_CHECKING:
    from multilane.error_consumer.replay import ReplayReport
    from multilane.outcome.redrive import ErrorGroup, Groups
    from multilane.wire.records.record import Record


def group_facts(topic: str, group: ErrorGroup) -> dict[str, Any]:
    return {
        "topic": topic,
        "error": group.pattern,
        "count": group.count,
        "replayed": group.replayed,
        "first": moment(group.first),
        "last": moment(group.last),
        "partitions": sorted(group.partitions),
        "example": group.example,
    }


def show_groups(found: Mapping[str, Groups]) -> None:
    console = output()
    for topic, groups in found.items():
        listed = groups.listed()
        if not listed:
            show_line(console, f"{topic}: no records")
            continue
        kinds = f"{len(listed)} {'kind' if len(listed) == 1 else 'kinds'} of error"
        table = Table(title=Text(f"{topic}: {sum(g.count for g in listed)} records, {kinds}"))
        for name in ("error", "count", "replayed", "first", "last", "partitions", "last record"):
            table.add_column(name, justify="right" if name in ("count", "replayed") else "left")
        for group in listed:
            numbers = (str(group.count), str(group.replayed), moment(group.first), moment(group.last))
            partitions = ", ".join(map(str, sorted(group.partitions)))
            table.add_row(*map(Text, (escaped(group.pattern), *numbers, partitions, group.example)))
        show_table(console, table)


def record_facts(record: Record, *, is_replayed: bool) -> dict[str, Any]:
    return {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": moment(record.timestamp),
        "replayed": is_replayed,
        "error": error_in(record.headers),
        "target": target_in(record.headers),
        "origin": origin_in(record.headers),
        "headers": [{"name": name, "value": payload(value)} for name, value in record.headers],
        "key": payload(record.key),
        "value": payload(record.value),
    }


def show_record(record: Record, *, is_replayed: bool) -> None:
    table = Table(show_header=False, title=Text(f"{record.topic}/{record.partition}@{record.offset}"))
    table.add_column("field", no_wrap=True)
    table.add_column("content")
    rows = [("time", moment(record.timestamp)), ("replayed", "yes" if is_replayed else "no")]
    rows += [("error", error_in(record.headers) or "not in the headers")]
    rows += [("target", target_in(record.headers) or "not in the headers"), ("key", escaped(record.key))]
    rows += [(f"header {escaped(name, 100)}", escaped(value)) for name, value in record.headers if name != ERROR_STACK]
    rows += [("value", escaped(record.value))]
    rows = [(name, escaped(content)) for name, content in rows]
    stack = error_stack(record.headers)
    rows += [] if stack is None else [("stack", by_line(stack))]  # the only field that keeps its line breaks
    for name, content in rows:
        table.add_row(Text(name), Text(content))
    show_table(output(), table)


def replay_facts(topic: str, report: ReplayReport, *, executed: bool) -> dict[str, Any]:
    return {
        "topic": topic,
        "executed": executed,
        "replayed": report.replayed,
        "replayed_before": report.skipped,
        "not_wanted": report.unwanted,
        "targets": dict(sorted(report.targets.items())),
        "without_allowed_target": dict(sorted(report.not_allowed.items())),
        "errors": [{"error": g.pattern, "count": g.count} for g in report.groups.listed()],
    }


def show_replay(reports: Mapping[str, ReplayReport], *, executed: bool) -> None:
    console = output()
    done = "replayed" if executed else "would be replayed"
    for topic, report in reports.items():
        show_line(console, f"{topic}: {report.replayed} records {done}")
        for target, count in sorted(report.targets.items()):
            show_line(console, f"  to {target}: {count}")
        for group in report.groups.listed():
            show_line(console, f"  {group.count} x {escaped(group.pattern)}")
        show_line(console, f"  already replayed: {report.skipped}, filtered out: {report.unwanted}")
        for target, count in sorted(report.not_allowed.items()):
            reason = f"name {escaped(target)}, which is not allowed" if target else "name no target"
            show_line(console, f"  not sent: {count} that {reason}")
    if not executed:
        show_line(console, "Nothing was sent. Add --execute to send the records.")
