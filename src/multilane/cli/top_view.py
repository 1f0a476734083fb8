"""How `multilane top` shows groups: a screen for people, a line of JSON for programs.

Thread: application.

Names come from anywhere: they are truncated, and control characters are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, groupby
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from multilane.cli.foreign_text import as_json, escaped, moment
from multilane.cli.top_cells import amount, brief, drained, rate_text, state
from multilane.cli.top_triggers import MOST_TRIGGERS, errors_of, failing, fails, lines_of_triggers, parts_of_triggers
from multilane.group.comparison import GroupReport, Movement, PartitionRow, named_members
from multilane.types import TopicPartition

WIDE: Final = 160  # columns, without a terminal
_LONGEST_NAME: Final = 100
_COLUMNS: Final = ("partition", "member", "committed", "end", "lag", "beyond", "settled/s", "arriving/s", "drained", "")
_LEFT: Final = ("partition", "member", "")
_LEFT_OUT: Final = ("end", "arriving/s", "member", "drained", "committed")  # in this order, on a narrow screen
_SHORT_NAME: Final = 24  # columns of a partition's name on a narrow screen
_GAP: Final = 2
_MOST_ERRORS: Final = 3
_STYLES: Final = {
    Movement.LEADERLESS: "bold red",
    Movement.EXPIRED: "bold red",
    Movement.STALLED: "bold red",
    Movement.HELD: "yellow",
    Movement.REWOUND: "yellow",
    Movement.MOVING: "green",
    Movement.DONE: "dim",
}


@dataclass(frozen=True, slots=True)
class ScreenFrame:
    """Everything on the screen except the groups; `height` None means unlimited lines."""

    wall: float
    every: str
    failure: str = ""
    height: int | None = None
    width: int = WIDE


@dataclass(frozen=True, slots=True)
class ScreenShare:
    """How many members, rows and triggers of a group are shown."""

    members: int
    rows: int
    triggers: int = 0


# --- for people ------------------------------------------------------------------------------------------------------


def screen(reports: Sequence[GroupReport], frame: ScreenFrame) -> Group:
    head = [_text(f"multilane top, every {frame.every}: {moment(frame.wall * 1_000)}", "dim")]
    if frame.failure:
        head.append(_text(f"the last poll failed, showing older data: {escaped(frame.failure, 300)}", "bold red"))
    shares = fitted(reports, None if frame.height is None else frame.height - len(head))
    parts = (_parts(report, share, frame.width) for report, share in zip(reports, shares, strict=True))
    return Group(*head, *chain.from_iterable(parts))


def fitted(reports: Sequence[GroupReport], room: int | None) -> list[ScreenShare]:
    """How much of each group fits: every group keeps its summary, and they share the remaining lines."""
    if room is None:
        return [ScreenShare(len(report.snapshot.members), len(report.rows), len(report.triggers)) for report in reports]
    triggers = max(1, min(MOST_TRIGGERS, room // (4 * len(reports) or 1)))  # a quarter, or half if each has an error
    heads = [2 + len(_remarks(report)) + lines_of_triggers(report, triggers) for report in reports]
    left = max(0, room - sum(heads))  # each with an empty line
    wanted = [_lines(ScreenShare(len(report.snapshot.members), len(report.rows)), report) for report in reports]
    given = dict.fromkeys(range(len(reports)), 0)
    for turn, (_, number) in enumerate(sorted((many, number) for number, many in enumerate(wanted))):
        given[number] = min(wanted[number], left // (len(reports) - turn))
        left -= given[number]
    shares = [_share(report, given[number]) for number, report in enumerate(reports)]
    return [replace(share, triggers=triggers) for share in shares]


def _share(report: GroupReport, lines: int) -> ScreenShare:
    """Members get a quarter of the lines, partitions the rest."""
    members, rows = len(report.snapshot.members), len(report.rows)
    if _lines(ScreenShare(members, rows), report) <= lines:
        return ScreenShare(members, rows)
    members_shown = min(members, lines // 4)
    for rows_shown in range(min(rows, lines), 0, -1):
        if _lines(ScreenShare(members_shown, rows_shown), report) <= lines:
            return ScreenShare(members_shown, rows_shown)
    return ScreenShare(0, 0)


def _lines(share: ScreenShare, report: GroupReport) -> int:
    """Lines of members and partitions: themselves, a heading, and a line that counts those left out."""
    members = share.members + (0 < share.members < len(report.snapshot.members))
    return members + (share.rows + 1 + (share.rows < len(report.rows)) if share.rows else 0)


def _parts(report: GroupReport, share: ScreenShare, width: int) -> Iterator[RenderableType]:
    yield _text("")
    yield _text(_summary(report), "bold")
    for remark in _remarks(report):
        yield _text(f"  {remark}", "yellow")
    yield from parts_of_triggers(report, share.triggers)
    members = named_members(report.snapshot.members)
    for member, name in members[: share.members]:
        assigned = "not a consumer" if member.partitions is None else ranges(member.partitions) or "no partitions"
        yield _text(f"  {escaped(name, _LONGEST_NAME)} @ {escaped(member.host, _LONGEST_NAME)}: {assigned}", "dim")
    if 0 < share.members < len(members):
        yield _text(f"  and {len(members) - share.members} more members", "dim")
    if share.rows:
        yield _table(report.rows[: share.rows], width)
        left_out = report.rows[share.rows :]
        if left_out:
            yield _text(f"  and {len(left_out)} more partitions, with a lag of at most {left_out[0].lag or 0:,}", "dim")


def _summary(report: GroupReport) -> str:
    snapshot = report.snapshot
    name, group = (escaped(text, _LONGEST_NAME) for text in (snapshot.subject.name, snapshot.subject.group))
    titled = f"{name}: group {group}" if name != group else f"group {group}"
    titled += f", {len(report.triggers)} triggers" if report.triggers else ""
    if not snapshot.is_there:
        return f"{titled} does not exist yet"
    members = len(snapshot.members)
    urgent = (Movement.STALLED, Movement.HELD, Movement.EXPIRED, Movement.LEADERLESS)
    parts = [
        f"{titled} ({snapshot.protocol}) {snapshot.state}",
        *([failing(report)] if fails(report) else []),
        *(f"{many} {verdict}" for verdict in urgent if (many := report.count(verdict))),
        f"{members} member{'s' if members != 1 else ''}",
        f"lag {report.lag:,}" + (f" ({report.beyond:,} of it settled)" if report.beyond else ""),
        f"settled {rate_text(report.settled_rate)}/s",
        f"arriving {rate_text(report.arrival_rate)}/s",
    ]
    if report.lag and report.drain is not None:
        parts.append("never drained" if math.isinf(report.drain) else f"drained in {brief(report.drain)}")
    return ", ".join(parts)


def _remarks(report: GroupReport) -> list[str]:
    """Remarks besides the numbers."""
    snapshot = report.snapshot
    remarks = errors_of(report, _MOST_ERRORS)
    remarks += [f"topic {escaped(topic, _LONGEST_NAME)} does not exist" for topic in snapshot.missing]
    if snapshot.is_there and not snapshot.members and report.lag:
        remarks.append("the group has no members: no records are handled")
    if snapshot.is_there and not snapshot.partitions and not snapshot.missing:
        remarks.append("the group has no committed offsets, and no member has a partition")
    return remarks


def _table(rows: Sequence[PartitionRow], width: int) -> Table:
    """Numbers are never truncated. On a narrow screen names are truncated first, then columns are left out."""
    columns = dict(zip(_COLUMNS, zip(*map(_cells, rows), strict=True), strict=True))
    widths = {name: max(map(cell_len, (name, *cells))) + _GAP for name, cells in columns.items()}
    longest_name = widths.pop("partition")
    for name in _LEFT_OUT:
        if sum(widths.values()) + min(longest_name, _SHORT_NAME) > width:
            del columns[name], widths[name]
    room = max(_SHORT_NAME // 2, width - sum(widths.values()) - _GAP)
    columns["partition"] = tuple(_end_of(text, room) for text in columns["partition"])
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in columns:
        side: JustifyMethod = "left" if name in _LEFT else "right"
        table.add_column(f"  {name}" if name == "partition" else name, justify=side, no_wrap=True, overflow="ellipsis")
    for row, cells in zip(rows, zip(*columns.values(), strict=True), strict=True):
        *others, state_text = cells
        table.add_row(*map(Text, others), Text(state_text, style=_STYLES.get(row.verdict, "")))
    return table


def _end_of(text: str, room: int) -> str:
    """Keeps the end of a name: the partition number comes after the topic."""
    return text if len(text) <= room else f"  \u2026{text[3 - room :]}"


def _cells(row: PartitionRow) -> tuple[str, ...]:
    """Cells in column order."""
    topic, number = row.partition
    return (
        f"  {escaped(topic, _LONGEST_NAME)}/{number}{' (retry)' if row.is_retry else ''}",
        "none" if row.member is None else escaped(row.member, _LONGEST_NAME),
        *(amount(value) for value in (row.committed, row.end, row.lag, row.beyond)),
        rate_text(row.settled_rate),
        rate_text(row.arrival_rate),
        drained(row),
        state(row),
    )


def ranges(partitions: Iterable[TopicPartition]) -> str:
    """`orders 0-3, 7; orders.retry 0`."""
    texts = []
    for topic, of_topic in groupby(sorted(partitions), key=lambda p: p.topic):
        numbers = [p.partition for p in of_topic]
        runs = []
        for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
            (_, first), *_rest = several = list(run)
            runs.append(str(first) if len(several) == 1 else f"{first}-{several[-1][1]}")
        texts.append(f"{escaped(topic, _LONGEST_NAME)} {', '.join(runs)}")
    return "; ".join(texts)


def _text(words: str, style: str = "") -> Text:
    return Text(words, style=style, no_wrap=True, overflow="ellipsis")


# --- for programs ----------------------------------------------------------------------------------------------------


def line(reports: Iterable[GroupReport], wall: float, failure: str = "") -> str:
    """One JSON object. After a failed poll it holds the error and no older data."""
    facts: dict[str, Any] = {"at": moment(wall * 1_000)}
    facts |= {"error": failure} if failure else {"groups": [_group_facts(report) for report in reports]}
    return as_json(facts, indent=None)


def _group_facts(report: GroupReport) -> dict[str, Any]:
    snapshot = report.snapshot
    return {
        "consumer": snapshot.subject.name,
        "group": snapshot.subject.group,
        "exists": snapshot.is_there,
        "protocol": snapshot.protocol or None,
        "state": snapshot.state or None,
        "members": [
            {
                "id": member.id,
                "name": name,
                "client_id": member.client_id,
                "host": member.host,
                "partitions": None if member.partitions is None else [p._asdict() for p in member.partitions],
            }
            for member, name in named_members(snapshot.members)
        ],
        "missing_topics": list(snapshot.missing),
        "lag": report.lag,
        "settled_beyond": report.beyond,
        "measured_seconds": report.seconds,
        "settled_per_second": report.settled_rate,
        "arriving_per_second": report.arrival_rate,
        "drain_seconds": _finite(report.drain),
        "stalled": report.count(Movement.STALLED),
        "failures": _failure_facts(report),
        "triggers": [_trigger_facts(trigger) for trigger in report.triggers],
        "partitions": [_row_facts(row) for row in report.rows],
    }


def _trigger_facts(report: GroupReport) -> dict[str, Any]:
    return {
        "trigger": report.snapshot.subject.name,
        "absent_since": report.snapshot.absent_since,
        "lag": report.lag,
        "settled_beyond": report.beyond,
        "settled_per_second": report.settled_rate,
        "drain_seconds": _finite(report.drain),
        "stalled": report.count(Movement.STALLED),
        "failures": _failure_facts(report),
        "partitions": [_row_facts(row) for row in report.rows],
    }


def _failure_facts(report: GroupReport) -> dict[str, Any]:
    failures, app = report.failures, report.app
    return {
        "per_second": failures.rate if app is None or app.rate is None else app.rate,
        "retried_per_second": failures.retried,
        "dead_per_second": failures.dead,
        "newest_errors": [{"error": head, "count": count} for head, count in failures.errors],
        "app": None if app is None else asdict(app) | {"errors": [{"error": t, "count": c} for t, c in app.errors]},
    }


def _row_facts(row: PartitionRow) -> dict[str, Any]:
    return {
        "topic": row.partition.topic,
        "partition": row.partition.partition,
        "retry": row.is_retry,
        "member": row.member,
        "committed": row.committed,
        "end": row.end,
        "lag": row.lag,
        "settled_beyond": row.beyond,
        "settled_per_second": row.settled_rate,
        "arriving_per_second": row.arrival_rate,
        "drain_seconds": _finite(row.drain),
        "verdict": row.verdict.value,
        "still_seconds": row.still,
    }


def _finite(seconds: float | None) -> float | None:
    return None if seconds is None or math.isinf(seconds) else seconds
