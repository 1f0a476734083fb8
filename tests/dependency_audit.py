"""Whether advisories are known for the packages of requirements.lock, by pip-audit: a part of `make lint`.

    python tests/dependency_audit.py [--required] [options of pip-audit, such as --vulnerability-service osv]

pip-audit says "no known vulnerabilities" also when its service could not be asked, as behind a mirror without
advisories. So the service is first asked about a package that is known to be vulnerable. Unless it names an advisory
for that within a few seconds, the packages count as NOT AUDITED, and lint goes on. `--required` (`make
audit-dependencies`) makes that a failure.

An advisory that cannot be met yet is accepted in pyproject.toml, `[tool.dependency-audit]`, with the reason and the
day on which it fails again.

Exit codes: 0 nothing was found (what could not be audited is said), 1 there are advisories, 2 not audited
(`--required`), or the list of accepted advisories is wrong.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from multilane.clock import SystemClock

ROOT = Path(__file__).parents[1]
KNOWN_VULNERABLE = "jinja2==2.4.1"
PROBE_PATIENCE = 8.0  # so that lint goes on soon where the service cannot be reached
PATIENCE = 180.0
NOT_AUDITED = "NOT AUDITED"
_FIELDS = {"id": str, "package": str, "reason": str, "until": date}


@dataclass(frozen=True, slots=True)
class Accepted:
    """An advisory that does not fail lint before that day."""

    id: str
    package: str
    reason: str
    until: date


@dataclass(frozen=True, slots=True)
class Verdict:
    lines: tuple[str, ...]
    code: int = 0
    is_complete: bool = True  # every package was audited


def accepted_of(entries: Sequence[dict[str, Any]]) -> tuple[Accepted, ...]:
    for entry in entries:
        if {name: type(value) for name, value in entry.items()} != _FIELDS or not entry["reason"].strip():
            form = '{ id = "...", package = "...", reason = "...", until = 2030-01-31 }'
            raise ValueError(f"pyproject.toml, tool.dependency-audit.accepted: {entry} is not of the form {form}")
    return tuple(Accepted(**entry) for entry in entries)


def probed(report: str, errors: str) -> Verdict | None:
    """Of the question about a package that is known to be vulnerable; None if the service knew it."""
    packages = _packages(report)
    if packages is None:
        return _unreached(errors)
    if any(package.get("vulns") for package in packages):
        return None
    why = f"the service names no advisory for {KNOWN_VULNERABLE}, which has some (a mirror without advisories?)"
    return Verdict((f"{NOT_AUDITED}: {why}",), is_complete=False)


def judge(report: str, errors: str, accepted: Sequence[Accepted], today: date) -> Verdict:
    """Of what pip-audit has printed as JSON about the lock, or could not."""
    packages = _packages(report)
    if packages is None:
        return _unreached(errors)
    used: set[Accepted] = set()
    failing: list[str] = []
    lines: list[str] = []
    for package in packages:
        for advisory in package.get("vulns", ()):
            text = _text(package, advisory)
            entry = next((one for one in accepted if _covers(one, package, advisory)), None)
            if entry is None:
                failing.append(text)
                continue
            used.add(entry)
            if entry.until <= today:
                failing.append(f"{text}; it was accepted until {entry.until} only: {entry.reason}")
            else:
                lines.append(f"accepted until {entry.until}: {text}: {entry.reason}")
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if not skipped:
        unused = [one for one in accepted if one not in used]
        lines += [f"no longer found, remove it from pyproject.toml: {one.package} {one.id}" for one in unused]
    asked = len(packages) - len(skipped)
    counted = f"{len(failing)} advisories for {asked} of {len(packages)} packages"
    lines = [*failing, *lines, counted + (f", and {len(used)} accepted" if used else "")]
    if skipped:
        names = ", ".join(skipped[:5]) + (" ..." if len(skipped) > 5 else "")
        lines.append(f"{NOT_AUDITED}: {len(skipped)} packages, which the advisory service does not know: {names}")
    return Verdict(tuple(lines), 1 if failing else 0, not skipped)


def _packages(report: str) -> list[dict[str, Any]] | None:
    try:
        found: list[dict[str, Any]] = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return None
    return found


def _unreached(errors: str) -> Verdict:
    why = (errors.strip().splitlines() or ["pip-audit did not say why"])[-1]
    return Verdict((f"{NOT_AUDITED}: the advisory service cannot be reached. {why}",), is_complete=False)


def _covers(accepted: Accepted, package: dict[str, Any], advisory: dict[str, Any]) -> bool:
    ids = {advisory["id"], *advisory.get("aliases", ())}
    return accepted.package == package["name"] and accepted.id in ids


def _text(package: dict[str, Any], advisory: dict[str, Any]) -> str:
    fixed = ", ".join(advisory.get("fix_versions") or ["no version yet"])
    return f"{package['name']} {package['version']}: {advisory['id']}, fixed in {fixed}"


def audited(options: Sequence[str], lock: Path, accepted: Sequence[Accepted], today: date) -> Verdict:
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as known:
        known.write(KNOWN_VULNERABLE + "\n")
        known.flush()
        found = _asked([*options, "--no-deps", "--timeout", "4"], Path(known.name), PROBE_PATIENCE)
    no_service = found if isinstance(found, Verdict) else probed(*found)
    if no_service is not None:
        return no_service
    found = _asked([*options, "--require-hashes"], lock, PATIENCE)
    return found if isinstance(found, Verdict) else judge(*found, accepted, today)


def _asked(options: Sequence[str], requirements: Path, patience: float) -> tuple[str, str] | Verdict:
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--aliases", "on", "--progress-spinner", "off"]
    command += ["--disable-pip", *options, "--requirement", str(requirements)]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=patience, check=False)
    except subprocess.TimeoutExpired:
        return Verdict((f"{NOT_AUDITED}: no answer from the advisory service in {patience:.0f} s",), is_complete=False)
    return done.stdout, done.stderr


def main(arguments: Sequence[str]) -> int:
    options = [argument for argument in arguments if argument != "--required"]
    today = datetime.fromtimestamp(SystemClock().wall(), UTC).date()
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dependency-audit"]
    try:
        accepted = accepted_of(table["accepted"])
    except ValueError as error:
        print(error)
        return 2
    verdict = audited(options, ROOT / "requirements.lock", accepted, today)
    print("\n".join(verdict.lines))
    return verdict.code or (2 if "--required" in arguments and not verdict.is_complete else 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
