"""The framework of every benchmark: machine facts, rows, bars, a table, and the results file.

Thread: application.

Rows are the only thing a benchmark measures; bars are computed from rows, printed in a fixed format and decide the exit
code. Never measures anything itself.
"""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.headlines import RESULTS, redraw_after

__all__ = ["RESULTS", "Bar", "Report", "Row", "conclude", "load_average", "machine_facts"]


@dataclass(frozen=True, slots=True)
class Row:
    """One measured figure."""

    system: str
    scenario: str
    metric: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure and its lower limit (upper limit with `at_most`)."""

    name: str
    value: float
    limit: float
    at_most: bool = False

    @property
    def holds(self) -> bool:
        return self.value <= self.limit if self.at_most else self.value >= self.limit

    def __str__(self) -> str:
        return f"bar: {self.name} {self.value:.2f} {self.limit:.2f} {'holds' if self.holds else 'falls short'}"


@dataclass(slots=True)
class Report:
    """The results of one run. `notes` describe how it was measured and go into the file unchanged."""

    name: str
    facts: dict[str, Any]
    notes: dict[str, Any] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    bars: list[Bar] = field(default_factory=list)

    def add(self, system: str, scenario: str, metric: str, value: float, unit: str) -> None:
        if self.find(system, scenario, metric) is not None:
            raise ValueError(f"{metric} of {system} in {scenario} was already added")
        self.rows.append(Row(system, scenario, metric, value, unit))

    def find(self, system: str, scenario: str, metric: str) -> float | None:
        wanted = (system, scenario, metric)
        return next((row.value for row in self.rows if (row.system, row.scenario, row.metric) == wanted), None)

    def best(self, systems: Iterable[str], scenario: str, metric: str) -> float | None:
        """The largest figure among systems; None unless all of them were measured."""
        found = [self.find(system, scenario, metric) for system in systems]
        known = [value for value in found if value is not None]
        return max(known) if known and len(known) == len(found) else None

    def bar_ratio(self, name: str, ours: float | None, theirs: float | None, limit: float) -> None:
        """A bar on `ours / theirs`; none if one of them was not measured (in a run of chosen systems)."""
        if ours is not None and theirs is not None:
            self.bars.append(Bar(name, ours / theirs, limit))

    @property
    def exit_code(self) -> int:
        return 0 if all(bar.holds for bar in self.bars) else 1

    def write(self, directory: Path = RESULTS) -> Path:
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{self.name}.json"
        bars = [{**asdict(bar), "holds": bar.holds} for bar in self.bars]
        rows = [asdict(row) for row in self.rows]
        content = {"name": self.name, "machine": self.facts, "notes": self.notes, "rows": rows, "bars": bars}
        path.write_text(json.dumps(content, indent=1) + "\n")
        redraw_after(path)
        return path

    def table(self, metrics: Sequence[str]) -> str:
        """Plain text: a line per system and scenario, a column per metric."""
        heads = ["scenario", "system", *(f"{metric} [{self._unit(metric)}]" for metric in metrics)]
        keys = dict.fromkeys((row.scenario, row.system) for row in self.rows)
        lines = [[*key, *(_shown(self.find(key[1], key[0], metric)) for metric in metrics)] for key in keys]
        widths = [max(map(len, column)) for column in zip(heads, *lines, strict=True)]
        return "\n".join(_aligned(line, widths) for line in (heads, *lines))

    def _unit(self, metric: str) -> str:
        return next((row.unit for row in self.rows if row.metric == metric), "-")


def conclude(report: Report, metrics: Sequence[str], directory: Path = RESULTS) -> int:
    """Print the table and the bars, and write the file; returns the exit code."""
    print(report.table(metrics))
    for bar in report.bars:
        print(bar)
    print(f"results: {report.write(directory)}")
    return report.exit_code


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1_000 else f"{value:.2f}"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """The two names left-aligned, figures right-aligned."""
    pairs = list(zip(cells, widths, strict=True))
    return "  ".join([*(c.ljust(w) for c, w in pairs[:2]), *(c.rjust(w) for c, w in pairs[2:])]).rstrip()


# --- the machine -----------------------------------------------------------------------------------------------------


def machine_facts(packages: Iterable[str], java: Path | None = None) -> dict[str, Any]:
    """The facts that are needed to compare figures."""
    return {
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "cpu": cpu_model(_text(Path("/proc/cpuinfo"))),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "java": None if java is None else java_version(java),
        "packages": {name: installed_version(name) for name in packages},
        "load_before": load_average(),
    }


def load_average() -> list[float]:
    return [round(value, 2) for value in os.getloadavg()]


def cpu_model(cpuinfo: str) -> str:
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            return value.strip()
    return platform.processor() or platform.machine()


def java_version(program: Path) -> str:
    done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=60, check=True)
    return (done.stderr or done.stdout).splitlines()[0]


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
