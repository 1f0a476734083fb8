"""Every test, in three runs of pytest beside each other: most of them wait for brokers, so two cores have time for all.

    python tests/side_by_side.py [options of pytest]

Each run has Kafkas of its own. What the first prints is shown as it comes, what the others print at their end, and the
last line counts all. The exit code is that of the worst. What needs no broker waits for nobody but a processor: it
steps back behind the others.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parents[1]
GROUPS_AND_SPARK = (
    "tests/broker/groups",
    "tests/broker/spark",
    "tests/broker/test_client_faults.py",
    "tests/broker/test_client_positions.py",
    "tests/broker/test_client_transactions.py",
    "tests/broker/test_dev_kafka.py",
    "tests/conformance/test_engines.py",
    "tests/conformance/test_overruns.py",
)
WITHOUT_BROKERS = ("tests/architecture", "tests/property", "tests/unit")
_STEP_BACK = ("nice", "-n", "5")
_CLOSING = re.compile(r"=* ?(.*?) in ([\d.]+)s(?: \([\d:]+\))? ?=*$")
_NO_TESTS = 5


class Beside:
    """A run that is heard at its end."""

    def __init__(self, command: list[str], kept: IO[str]) -> None:
        self._kept = kept
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=kept, stderr=subprocess.STDOUT)

    def end(self) -> None:
        self._process.terminate()
        self._process.wait()

    def told(self) -> tuple[int, str]:
        """Prints what it said; gives its exit code and its closing line."""
        code = self._process.wait()
        self._kept.seek(0)
        told = self._kept.read()
        print(told, end="", flush=True)
        return code, closing_of(told.splitlines())


def run(options: list[str]) -> int:
    pytest = [sys.executable, "-m", "pytest", *options]
    others = (*GROUPS_AND_SPARK, *WITHOUT_BROKERS)
    with tempfile.TemporaryFile("w+") as second, tempfile.TemporaryFile("w+") as third:
        beside = [
            Beside([*pytest, *GROUPS_AND_SPARK], second),
            Beside([*_STEP_BACK, *pytest, *WITHOUT_BROKERS], third),
        ]
        try:
            ended = [_shown([*pytest, *(f"--ignore={path}" for path in others)])]
            ended += [one.told() for one in beside]
        except BaseException:
            for one in beside:
                one.end()
            raise
    print(summed([closing for _, closing in ended]))
    return worst([code for code, _ in ended])


def worst(codes: list[int]) -> int:
    """That a run has found none of the tests that were asked for is no failure, unless none has."""
    found = [code for code in codes if code != _NO_TESTS]
    return max(found, key=abs) if found else _NO_TESTS


def _shown(command: list[str]) -> tuple[int, str]:
    lines: list[str] = []
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        for line in process.stdout or ():
            print(line, end="", flush=True)
            lines.append(line.rstrip())
    return process.returncode, closing_of(lines)


def closing_of(lines: list[str]) -> str:
    """pytest's last line. Libraries may have a word behind it, when the process ends."""
    closing = [line for line in lines if line.startswith("=") and _CLOSING.match(line)]
    return closing[-1] if closing else next((line for line in reversed(lines) if line.strip()), "")


def summed(lines: list[str]) -> str:
    """One closing line for several: what they counted together, and the longest time."""
    counts: Counter[str] = Counter()
    longest = 0.0
    for line in lines:
        found = _CLOSING.match(line)
        if found is None:
            return f"===== a run of pytest ended without its closing line: {line[:200]} ====="
        longest = max(longest, float(found[2]))
        for many, what in re.findall(r"(\d+) (\w+)", found[1]):
            counts[what] += int(many)
    together = ", ".join(f"{many} {what}" for what, many in counts.items())
    return f"===== {together} in {longest:.2f}s ====="


if __name__ == "__main__":
    sys.exit(run(["-m", "not long", *sys.argv[1:]]))
