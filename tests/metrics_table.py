"""The table of docs/metrics.md, made from the definitions: `python tests/metrics_table.py` writes it (make map)."""

from __future__ import annotations

from pathlib import Path

from multilane.metrics.definitions import METRICS, MetricKind
from multilane.metrics.prometheus import prometheus_name

PAGE = Path(__file__).parents[1] / "docs" / "metrics.md"
HEAD = "| metric | for Prometheus | kind | unit | labels | meaning |\n|---|---|---|---|---|---|\n"


def table() -> str:
    rows = [
        f"| `{m.name}` | `{prometheus_name(m)}{'_total' if m.kind is MetricKind.COUNTER else ''}` "
        f"| {m.kind} | {m.unit} | {', '.join(f'`{label}`' for label in m.labels)} | {m.help} |"
        for m in METRICS
    ]
    return HEAD + "\n".join(rows) + "\n"


def with_table(page: str) -> str:
    before, _, rest = page.partition(HEAD)
    lines = rest.splitlines(keepends=True)
    while lines and lines[0].startswith("|"):
        lines.pop(0)
    return before + table() + "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text()))
