"""How `multilane audit` shows its result: a table and sentences for people, plain facts for programs.

Thread: application.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console
from rich.table import Table

from multilane.audit.verdict import AuditCounts, Doubtful, Repeated, Unaccounted, total
from multilane.cli.tables import output, show_line, show_table

if TYPE_CHECKING:
    from multilane.audit.run import GroupAudit
    from multilane.types import TopicPartition

_MOST_PARTITIONS: Final = 24
_MOST_FAULTS: Final = 10
_COLUMNS: Final = ("read", "done", "skipped", "retried", "dead", "unaccounted", "repeated", "doubtful", "inverted")
_ALWAYS: Final = ("read", "done")
_TITLES: Final = {"inverted": "out of order", "doubtful": "maybe repeated"}


def is_proved(made: GroupAudit, *, exactly_once: bool) -> bool:
    """An audit that read no records proves nothing."""
    return bool(made.verdict.total.read) and _objection(made, exactly_once=exactly_once) is None


def _holes(made: GroupAudit) -> list[str]:
    """Partitions with settled records and without any audit record."""
    return [str(partition) for partition, span in sorted(made.spans.items()) if span.is_hole]


def _objection(made: GroupAudit, *, exactly_once: bool) -> str | None:
    """Why this is no proof; None when it is one."""
    found = made.verdict.total
    if found.unaccounted:
        return f"{found.unaccounted:,} records have no audit record"
    if holes := _holes(made):
        return f"there are no audit records for {', '.join(holes)}"
    if (unusable := _unusable(made)) is not None:
        return unusable
    if found.inverted:
        return f"{found.inverted:,} were handled before an earlier record of their key"
    return _not_once(made) if exactly_once else None


def _unusable(made: GroupAudit) -> str | None:
    """Why the audit records are incomplete."""
    if made.files.faults:
        return "audit files are missing or damaged"
    if made.strayed:
        return "some audit records belong to a log that was truncated or deleted since"
    if any(span.is_loose for span in made.spans.values()):
        return "an earlier version wrote the audit records, so their beginning is unknown: set --since"
    return None


def _not_once(made: GroupAudit) -> str | None:
    """Why it is not known that each record was handled once."""
    found, books = made.verdict.total, made.files
    if found.repeated:
        return f"{found.repeated:,} have more than one audit record"
    if found.doubtful:
        return f"{found.doubtful:,} may have been handled more than once"
    if books.old:
        return "an earlier version wrote some audit records, without the records in flight at a kill"
    return None


def show(made: GroupAudit, *, exactly_once: bool = False, console: Console | None = None) -> None:
    console = console or output()
    show_table(console, _table(made))
    for line in _findings(made):
        show_line(console, f"! {line}")
    for line in _limits(made):
        show_line(console, line, "dim")
    show_line(console, sentence(made, exactly_once=exactly_once), "bold")


def sentence(made: GroupAudit, *, exactly_once: bool = False) -> str:
    """The verdict. It never claims more than is proved."""
    found = made.verdict.total
    if not found.read:
        return f"Group {made.group}: nothing could be judged."
    sums = f"{found.done:,} done + {found.skipped:,} skipped + {found.retried:,} retried + {found.dead:,} dead"
    objection = _objection(made, exactly_once=exactly_once)
    if found.unaccounted:
        return f"NOT PROVED: {found.read:,} read, but {sums}: {objection}."
    if objection is not None:
        return f"NOT PROVED: {found.read:,} read = {sums}, but {objection}."
    order = "" if made.order.by is None else f", in order per {made.order.by}"
    return f"Proved: {found.read:,} read = {sums}{order}{_repeat_clause(made)}."


def _repeat_clause(made: GroupAudit) -> str:
    found = made.verdict.total
    known = [f"{found.repeated:,} were handled more than once"] if found.repeated else []
    if found.doubtful:
        known.append(f"{found.doubtful:,} may have been handled more than once")
    if known:
        return "; " + ", ".join(known)
    return ", each once" if _not_once(made) is None else "; not proved: that each was handled once"


def facts(made: GroupAudit, *, exactly_once: bool = False) -> dict[str, Any]:
    verdict = made.verdict
    return {
        "group": made.group,
        "topics": list(made.topics),
        "proved": is_proved(made, exactly_once=exactly_once),
        "verdict": sentence(made, exactly_once=exactly_once),
        "order": {"by": made.order.by, "why": made.order.why},
        "total": _numbers(verdict.total),
        "partitions": [
            {"topic": p.topic, "partition": p.partition, "start": span.start, "end": span.end, "expired": span.expired}
            | {"why": span.why, "uncovered": span.uncovered, "beyond": span.beyond}
            | _numbers(verdict.tallies.get(p, AuditCounts()))
            for p, span in sorted(made.spans.items())
        ],
        "files": {
            "faults": list(made.files.faults),
            "old_sessions": list(made.files.old),
            "other_logs": list(made.strayed),
        },
        "examples": {
            "unaccounted": [_finding_facts(one) for one in verdict.unaccounted],
            "repeated": [_finding_facts(one) for one in verdict.repeated],
            "doubtful": [_finding_facts(one) for one in verdict.doubtful],
            "inverted": [_finding_facts(one) for one in verdict.inverted],
        },
    }


def _numbers(tally: AuditCounts) -> dict[str, int]:
    return {name: getattr(tally, name) for name in (*_COLUMNS, "waiting", "gone")}


def _finding_facts(finding: Any) -> dict[str, Any]:
    rest = asdict(finding)
    rest.pop("partition")
    return {"topic": finding.partition.topic, "partition": finding.partition.partition, **rest}


def _table(made: GroupAudit) -> Table:
    """Columns without any count are left out."""
    table = Table(title=f"group {made.group}", title_justify="left", show_footer=True)
    everything = made.verdict.total
    columns = [name for name in _COLUMNS if name in _ALWAYS or getattr(everything, name)]
    table.add_column("partition", footer="all", no_wrap=True)
    for name in columns:
        table.add_column(_TITLES.get(name, name), f"{getattr(everything, name):,}", justify="right", no_wrap=True)
    for name, tally in _rows(made):
        table.add_row(name, *(f"{getattr(tally, column):,}" for column in columns))
    return table


def _rows(made: GroupAudit) -> Iterator[tuple[str, AuditCounts]]:
    """One row per partition, or per topic when there are too many; rows with findings come first."""
    tallies = made.verdict.tallies
    if len(tallies) > _MOST_PARTITIONS:
        for topic in made.topics:
            yield topic, total(tally for p, tally in tallies.items() if p.topic == topic)
        return

    def findings(partition: TopicPartition) -> int:
        return -(tallies[partition].unaccounted + tallies[partition].inverted)

    for partition in sorted(sorted(tallies), key=findings):
        yield f"{partition.topic}-{partition.partition}", tallies[partition]


def _findings(made: GroupAudit) -> Iterator[str]:
    verdict, found = made.verdict, made.verdict.total
    yield from made.files.faults[:_MOST_FAULTS]
    if len(made.files.faults) > _MOST_FAULTS:
        yield f"and {len(made.files.faults) - _MOST_FAULTS:,} more faulty files (--output json lists all)"
    yield from made.strayed
    for one in verdict.unaccounted:
        yield f"{_range(one)} without an audit record"
    for two in verdict.inverted:
        yield f"{two.partition}@{two.offset} was handled before {two.behind} of the same key"
    for three in verdict.repeated:
        yield f"{_range(three)} with {three.times} audit records, the last is {three.outcome}"
    for four in verdict.doubtful:
        yield f"{_range(four)} may have been in flight at a kill or a timeout: possibly handled more than once"
    for many, named, what in (
        (found.unaccounted, verdict.unaccounted, "without an audit record"),
        (found.repeated, verdict.repeated, "with more than one audit record"),
        (found.doubtful, verdict.doubtful, "that may have been handled more than once"),
    ):
        left = many - sum(one.last - one.offset + 1 for one in named)
        if left > 0:
            yield f"and {left:,} more {what} (raise --examples to list more)"
    if found.inverted > len(verdict.inverted):
        yield f"and {found.inverted - len(verdict.inverted):,} more out of order (raise --examples to list more)"


def _range(found: Unaccounted | Repeated | Doubtful) -> str:
    if found.offset == found.last:
        return f"{found.partition}@{found.offset}: 1 record"
    return f"{found.partition}@{found.offset}-{found.last}: {found.last - found.offset + 1:,} records"


def _limits(made: GroupAudit) -> Iterator[str]:
    """What was not judged, and why."""
    for partition, span in sorted(made.spans.items()):
        if span.why:
            yield f"{partition} was not judged: {span.why}"
        elif span.expired:
            yield f"{partition}: {span.expired:,} offsets before {span.start} are gone from the log and were not judged"
    yield from _uncovered(made)
    yield from _beyond(made)
    if made.files.old:
        yield f"{len(made.files.old):,} sessions of an earlier version lack the records in flight at a kill"
    if made.order.by is None:
        yield f"order was not judged: {made.order.why}"
    if waiting := made.verdict.total.waiting:
        yield f"the copies of {waiting:,} retried records were not judged: the group has not committed them yet"
    gone = made.verdict.total.gone
    if gone:
        yield f"{gone:,} audit records refer to records that are no longer in the log"


def _uncovered(made: GroupAudit) -> Iterator[str]:
    """Requested offsets from before the first audit record."""
    spans = {partition: span for partition, span in sorted(made.spans.items()) if span.uncovered}
    if len(spans) > _MOST_PARTITIONS:
        many = sum(span.uncovered for span in spans.values())
        yield f"{many:,} offsets of {len(spans)} partitions precede their first audit record and were not judged"
        return
    for partition, span in spans.items():
        before = span.start - span.expired
        yield f"{partition}: {span.uncovered:,} offsets before {before} precede its first audit record: not judged"


def _beyond(made: GroupAudit) -> Iterator[str]:
    """Audit records that the group's commit does not cover."""
    spans = {partition: span for partition, span in sorted(made.spans.items()) if span.beyond}
    if len(spans) > _MOST_PARTITIONS:
        many = sum(span.beyond for span in spans.values())
        yield f"{len(spans)} partitions have audit records beyond their commits, up to {many:,} offsets: not judged"
        return
    for partition, span in spans.items():
        yield f"{partition}: audit records up to {span.beyond:,} offsets beyond the commit were not judged"
