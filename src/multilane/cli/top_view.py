"""How `multilane top` shows groups: a screen for people, a line of JSON for programs.

Thread: application.

Names come from anywhere: they are truncated, and control characters are escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import chain, groupby
from typing import Any, Final

from rich.cells import cell_len
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from multilane.cli.foreign_text import as_json, escaped, moment
from multilane.group.comparison import GroupReport, Movement, PartitionRow, named_members
from multilane.types import TopicPartition

WIDE: Final = 160  # columns, without a terminal
_LONGEST_NAME: Final = 100
_COLUMNS: Final = ("partition", "member", "committed", "end", "lag", "beyond", "settled/s", "arriving/s", "drained", "")
_LEFT: Final = ("partition", "member", "")
_LEFT_OUT: Final = ("end", "arriving/s", "member", "drained", "committed")  # in this order, on a narrow screen
_SHORT_NAME: Final = 24  # columns of a partition's name on a narrow screen
_GAP: Final = 2
_LONGEST_ERROR: Final = 200
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
_UNITS: Final = ((86_400, "d"), (3_600, "h"), (60, "m"), (1, "s"))


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
    """How many members and rows of a group are shown."""

    members: int
    rows: int


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
        return [ScreenShare(len(report.snapshot.members), len(report.rows)) for report in reports]
    left = max(0, room - sum(2 + len(_remarks(report)) for report in reports))  # each with an empty line
    wanted = [_lines(ScreenShare(len(report.snapshot.members), len(report.rows)), report) for report in reports]
    given = dict.fromkeys(range(len(reports)), 0)
    for turn, (_, number) in enumerate(sorted((many, number) for number, many in enumerate(wanted))):
        given[number] = min(wanted[number], left // (len(reports) - turn))
        left -= given[number]
    return [_share(report, given[number]) for number, report in enumerate(reports)]


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
    if not snapshot.is_there:
        return f"{titled} does not exist yet"
    members = len(snapshot.members)
    urgent = (Movement.STALLED, Movement.HELD, Movement.EXPIRED, Movement.LEADERLESS)
    parts = [
        f"{titled} ({snapshot.protocol}) {snapshot.state}",
        *([_failing(report)] if _fails(report) else []),
        *(f"{many} {verdict}" for verdict in urgent if (many := report.count(verdict))),
        f"{members} member{'s' if members != 1 else ''}",
        f"lag {report.lag:,}" + (f" ({report.beyond:,} of it settled)" if report.beyond else ""),
        f"settled {_rate(report.settled_rate)}/s",
        f"arriving {_rate(report.arrival_rate)}/s",
    ]
    if report.lag and report.drain is not None:
        parts.append("never drained" if math.isinf(report.drain) else f"drained in {brief(report.drain)}")
    return ", ".join(parts)


def _fails(report: GroupReport) -> bool:
    return report.failures.are_there or bool(report.app and (report.app.rate or report.app.is_paused))


def _failing(report: GroupReport) -> str:
    """The app's own count if known, because it includes failures that leave no copy."""
    failures, app = report.failures, report.app
    rate = failures.rate if app is None or app.rate is None else app.rate
    dead = f", {_rate(failures.dead)}/s to the error topic" if failures.dead else ""
    paused = "PAUSED by an outage, " if app is not None and app.is_paused else ""
    return f"{paused}FAILING {_rate(rate)}/s{dead}"


def _errors(report: GroupReport) -> list[str]:
    """The most frequent current errors: as the app reports them, else from the newest copies."""
    if report.app is not None and report.app.errors:
        found, where = report.app.errors, "in the app"
    elif report.failures.are_there:
        found, where = report.failures.errors, "of the newest copies"
    else:
        return []
    return [f"error: {escaped(text, _LONGEST_ERROR)} ({count:,} {where})" for text, count in found[:_MOST_ERRORS]]


def _remarks(report: GroupReport) -> list[str]:
    """Remarks besides the numbers."""
    snapshot = report.snapshot
    remarks = _errors(report)
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
        *(_number(value) for value in (row.committed, row.end, row.lag, row.beyond)),
        _rate(row.settled_rate),
        _rate(row.arrival_rate),
        _drained(row),
        state(row),
    )


def state(row: PartitionRow) -> str:
    """The verdict in words, with the offset to inspect."""
    match row.verdict:
        case Movement.STALLED:
            return f"stalled {brief(row.still)}" + ("" if row.committed is None else f" at {row.committed}")
        case Movement.HELD:
            return f"held {brief(row.still)} by {row.committed}"
        case Movement.WAITING if row.still:
            return f"waiting {brief(row.still)}"
        case Movement.EXPIRED:
            return "expired: the log begins later"
        case Movement.REWOUND:
            return "rewound: the offset moved back"
        case _:
            return row.verdict.value


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


def brief(seconds: float) -> str:
    """A duration in its two largest units: 45 s, 2 m 5 s, 3 h 10 m."""
    left = round(seconds)
    if not left:
        return "0 s" if seconds < 0.05 else f"{seconds:.1f} s"
    counts = []
    for length, unit in _UNITS:
        count, left = divmod(left, length)
        counts.append((count, unit))
    first = next(number for number, (count, _) in enumerate(counts) if count)
    return " ".join(f"{count} {unit}" for count, unit in counts[first : first + 2] if count)


def _drained(row: PartitionRow) -> str:
    if row.drain is None or not row.lag or row.verdict is Movement.STALLED:
        return "-"
    return "never" if math.isinf(row.drain) else brief(row.drain)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def _rate(rate: float | None) -> str:
    if rate is None:
        return "-"
    return f"{rate:,.0f}" if rate >= 10 or not rate else f"{rate:.1f}"


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
