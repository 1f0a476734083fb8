"""Every test, in two runs of pytest beside each other: most of them wait for brokers, so two cores have time for both.

    python tests/side_by_side.py [options of pytest]

Each run has Kafkas of its own. What the first prints is shown as it comes, what the second prints at its end, and the
last line counts both. The exit code is that of the worse.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECOND = ("tests/broker/groups", "tests/broker/test_client_faults.py", "tests/broker/test_client_positions.py")
SECOND += ("tests/broker/test_client_security.py", "tests/broker/test_client_transactions.py")
SECOND += tuple(f"tests/conformance/test_{name}.py" for name in ("engines", "overruns"))
SECOND += (
    "tests/broker/spark",
    "tests/broker/test_dev_kafka.py",
    "tests/broker/test_group_offsets.py",
    "tests/broker/test_admin.py",
)
_CLOSING = re.compile(r"=* ?(.*?) in ([\d.]+)s(?: \([\d:]+\))? ?=*$")
_NO_TESTS = 5


def run(options: list[str]) -> int:
    pytest = [sys.executable, "-m", "pytest", *options]
    with tempfile.TemporaryFile("w+") as kept:
        second = subprocess.Popen([*pytest, *SECOND], cwd=ROOT, stdout=kept, stderr=subprocess.STDOUT)
        try:
            first, closing = _shown([*pytest, *(f"--ignore={path}" for path in SECOND)])
        except BaseException:
            second.terminate()
            raise
        finally:
            second.wait()
        kept.seek(0)
        told = kept.read()
    print(told, end="", flush=True)
    print(summed([closing, closing_of(told.splitlines())]))
    return max(code for code in (first, second.returncode) if code != _NO_TESTS or code == first == second.returncode)


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
