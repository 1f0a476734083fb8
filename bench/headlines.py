"""The headline figures of README.md and bench/README.md, and the chart, from the files in `results`.

Thread: application.

`python -m bench.headlines` writes them; every benchmark that runs as a whole does so at its end. A headline names rows
of a results file, so its figures cannot drift from what was measured.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

RESULTS: Final = Path(__file__).parent / "results"
PAGE: Final = Path(__file__).parent / "README.md"
FRONT_PAGE: Final = Path(__file__).parents[1] / "README.md"
CHART: Final = RESULTS / "headlines.svg"
BEGIN: Final = "<!-- headlines: python -m bench.headlines -->\n"
END: Final = "<!-- end -->\n"

Figures = Mapping[tuple[str, str, str], float]  # (system, scenario, metric) -> value


@dataclass(frozen=True, slots=True)
class Headline:
    """One comparison. Of several rivals the best one counts."""

    report: str  # the results file, which is also the section of bench/README.md
    title: str
    scenario: str
    metric: str
    ours: str
    rivals: tuple[str, ...]
    rival_name: str
    unit: str = "records/s"
    section: str = ""

    @property
    def less_is_better(self) -> bool:
        return self.unit == "ms"


HEADLINES: Final = (
    Headline(
        "consume",
        "columns, 100 bytes",
        "100b-none",
        "rate",
        "columns",
        ("java-classic", "java-consumer"),
        "Java's consumer",
    ),
    Headline(
        "consume",
        "columns, 100 bytes",
        "100b-none",
        "rate",
        "columns",
        ("confluent", "confluent-no-crc", "aiokafka", "kafka-python"),
        "the best Python client",
    ),
    Headline(
        "groups",
        "first record of a new process, KIP-848",
        "first-record",
        "cold",
        "ours-consumer",
        ("java-consumer",),
        "Java's consumer",
        "ms",
    ),
    Headline(
        "groups",
        "first record of a new process, classic",
        "first-record",
        "cold",
        "ours-classic",
        ("aiokafka-classic",),
        "aiokafka",
        "ms",
    ),
    Headline(
        "lanes",
        "15 partitions x 20 lanes, calls of 20 ms",
        "single-15x20",
        "rate",
        "ours",
        ("parallel-consumer",),
        "parallel-consumer",
    ),
    Headline(
        "lanes",
        "20 x 200 lanes, two processes",
        "single-20x200",
        "rate",
        "ours-2-processes",
        ("parallel-consumer",),
        "parallel-consumer",
    ),
    Headline("spark", "source to nowhere", "source-noop", "rate", "multilane", ("connector",), "Spark's connector"),
    Headline(
        "spark-latency",
        "p50 of a record, batches",
        "1000-a-second",
        "p50",
        "spark-batches",
        ("connector-foreachBatch",),
        "Spark's connector",
        "ms",
        section="how-long-records-take",
    ),
)


@dataclass(frozen=True, slots=True)
class Share:
    """What part of the best possible rate a system reaches, in words that name the scenario."""

    report: str
    text: str
    scenario: str
    systems: tuple[str, ...]
    best: str


SHARES: Final = (
    Share("lanes", "15 partitions x 20 lanes: {} % of the theoretical limit", "single-15x20", ("ours",), "limit"),
    Share("lanes", "20 x 200, two processes: {} %", "single-20x200", ("ours-2-processes",), "limit"),
    Share(
        "spark-lanes",
        "15 x 20 on Spark: {} % of a bare event loop's rate",
        "single-15x20",
        ("spark-batches", "spark-continuous"),
        "bare-loop",
    ),
)
_REPORTS: Final = frozenset(fact.report for fact in (*HEADLINES, *SHARES))


@dataclass(frozen=True, slots=True)
class Measured:
    headline: Headline
    ours: float
    theirs: float

    @property
    def times_better(self) -> float:
        return self.theirs / self.ours if self.headline.less_is_better else self.ours / self.theirs


def read_figures(report: str, directory: Path = RESULTS) -> Figures:
    rows = json.loads((directory / f"{report}.json").read_text())["rows"]
    return {(row["system"], row["scenario"], row["metric"]): row["value"] for row in rows}


def measured(headline: Headline, figures: Figures) -> Measured:
    best = min if headline.less_is_better else max
    theirs = best(figures[rival, headline.scenario, headline.metric] for rival in headline.rivals)
    return Measured(headline, figures[headline.ours, headline.scenario, headline.metric], theirs)


def all_measured(directory: Path = RESULTS) -> list[Measured]:
    files = {headline.report: read_figures(headline.report, directory) for headline in HEADLINES}
    return [measured(headline, files[headline.report]) for headline in HEADLINES]


# --- the table -------------------------------------------------------------------------------------------------------


def table(lines: Iterable[Measured], page: str = "") -> str:
    """`page`: where the sections are that the lines link to, if not on the table's own page."""
    head = "| benchmark | multilane | compared with | multilane is |\n|---|---|---|---|\n"
    return head + "".join(_table_row(line, page) for line in lines)


def _table_row(line: Measured, page: str) -> str:
    headline = line.headline
    name = headline.report.partition("-")[0]
    link = f"[{name}]({page}#{headline.section or headline.report})"
    ours, theirs = (_with_unit(value, headline.unit) for value in (line.ours, line.theirs))
    return f"| {link}: {headline.title} | {ours} | {headline.rival_name}, {theirs} | {_verdict(line)} |\n"


def _verdict(line: Measured) -> str:
    times = line.times_better
    if 0.95 <= times <= 1.05:
        return f"even ({times:.2f} x)"
    return f"{_times(times)} x faster" if times > 1 else f"{_times(1 / times)} x slower"


def _times(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 1.1 else f"{value:.2f}"


def _with_unit(value: float, unit: str) -> str:
    return f"{value / 1e6:.2f} M {unit}" if value >= 1e6 else f"{value:,.0f} {unit}"


def shares(directory: Path = RESULTS) -> str:
    """One line: how close to the best possible rate."""
    return f"Calls of 20 ms, {'; '.join(_share(share, read_figures(share.report, directory)) for share in SHARES)}.\n"


def _share(share: Share, figures: Figures) -> str:
    best = figures[share.best, share.scenario, "rate"]
    reached = sorted({round(100 * figures[system, share.scenario, "rate"] / best) for system in share.systems})
    return share.text.format(" to ".join(map(str, reached)))


def with_headlines(page: str, lines: Iterable[Measured]) -> str:
    chart = f"![the same as bars]({CHART.parent.name}/{CHART.name})\n"
    return _between_marks(page, table(lines) + "\n" + chart)


def with_front_headlines(page: str, lines: Iterable[Measured], shares: str) -> str:
    return _between_marks(page, table(lines, f"{PAGE.parent.name}/{PAGE.name}") + "\n" + shares)


def _between_marks(page: str, text: str) -> str:
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no place for the headlines: {BEGIN.strip()} ... {END.strip()}")
    return before + BEGIN + text + END + after


# --- the chart -------------------------------------------------------------------------------------------------------

_WIDTH: Final = 860
_LABELS: Final = 400  # where the labels end and the bars begin
_ROW: Final = 30
_TOP: Final = 44
_TICKS: Final = (0.1, 0.3, 1, 3, 10, 30)
_BETTER, _WORSE = "#2f6f9f", "#c0603a"


def chart(lines: Iterable[Measured]) -> str:
    """Bars on a logarithmic scale, from 1 to how many times better multilane is (to the left: worse)."""
    rows = list(lines)
    height = _TOP + _ROW * len(rows) + 30
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" height="{height}"'
        ' font-family="system-ui, sans-serif" font-size="13">',
        f'<rect width="{_WIDTH}" height="{height}" fill="white"/>',
        '<text x="12" y="22" font-weight="600">How many times faster multilane is (logarithmic scale)</text>',
    ]
    for tick in _TICKS:
        x, bottom = _x(tick), _TOP + _ROW * len(rows)
        line = "#555" if tick == 1 else "#ddd"
        parts.append(f'<line x1="{x:.0f}" y1="{_TOP - 8}" x2="{x:.0f}" y2="{bottom}" stroke="{line}"/>')
        parts.append(f'<text x="{x:.0f}" y="{bottom + 18}" text-anchor="middle" fill="#555">{tick:g} x</text>')
    for number, row in enumerate(rows):
        parts += _bar(row, _TOP + _ROW * number)
    return "\n".join([*parts, "</svg>", ""])


def _bar(line: Measured, y: int) -> list[str]:
    times = line.times_better
    left, right = sorted((_x(1), _x(times)))
    label = escape(f"{line.headline.title}: {line.headline.rival_name}")
    colour = _BETTER if times >= 1 else _WORSE
    value = f"{_times(times)} x" if times >= 1 else f"{times:.2f} x"
    return [
        f'<text x="{_LABELS - 12}" y="{y + 15}" text-anchor="end">{label}</text>',
        f'<rect x="{left:.0f}" y="{y + 2}" width="{max(right - left, 2):.0f}" height="18" fill="{colour}"/>',
        f'<text x="{right + 6:.0f}" y="{y + 16}" font-weight="600">{value}</text>',
    ]


def _x(times: float) -> float:
    low, high = math.log(_TICKS[0] * 0.7), math.log(_TICKS[-1] * 1.6)
    return _LABELS + (_WIDTH - _LABELS - 50) * (math.log(times) - low) / (high - low)


def redraw_after(results: Path) -> None:
    """Call when a results file was written: redraws if headlines are read from it."""
    if results in {RESULTS / f"{report}.json" for report in _REPORTS}:
        write()


def write() -> None:
    lines = all_measured()
    CHART.write_text(chart(lines))
    PAGE.write_text(with_headlines(PAGE.read_text(), lines))
    FRONT_PAGE.write_text(with_front_headlines(FRONT_PAGE.read_text(), lines, shares()))


if __name__ == "__main__":
    write()
