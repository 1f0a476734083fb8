"""`make audit-dependencies`: whether advisories are known for the packages of requirements.lock, by pip-audit.

Needs the network. pip-audit itself says "no known vulnerabilities" also for packages that its service could not be
asked about, as behind a mirror that has no advisories. Here they count as not audited: that is said, and no failure.

Exit codes: 0 nothing was found (what could not be audited is said), 1 there are advisories.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PIP_AUDIT = "pip-audit==2.10.1"  # not in the lock: it would bring forty packages into every environment
PATIENCE = 600.0
NOT_AUDITED = "NOT AUDITED"


@dataclass(frozen=True, slots=True)
class Verdict:
    lines: tuple[str, ...]
    code: int = 0


def judge(report: str, errors: str) -> Verdict:
    """Of what pip-audit has printed as JSON, or could not."""
    try:
        packages: list[dict[str, Any]] = json.loads(report)["dependencies"]
    except (ValueError, KeyError, TypeError):
        why = (errors.strip().splitlines() or ["pip-audit did not say why"])[-1]
        return Verdict((f"{NOT_AUDITED}: advisories cannot be reached from here. {why}",))
    found = [line for package in packages for line in _advisories(package)]
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    asked = len(packages) - len(skipped)
    lines = [*found, f"{len(found)} advisories for {asked} of {len(packages)} packages"]
    if skipped:
        names = ", ".join(skipped[:5]) + (" ..." if len(skipped) > 5 else "")
        lines.append(f"{NOT_AUDITED}: {len(skipped)} packages, which the advisory service does not know here: {names}")
    return Verdict(tuple(lines), 1 if found else 0)


def _advisories(package: dict[str, Any]) -> list[str]:
    name = f"{package['name']} {package.get('version', '')}".strip()
    return [
        f"{name}: {one['id']}, fixed in {', '.join(one.get('fix_versions') or ['no version yet'])}"
        for one in package.get("vulns", ())
    ]


def audited(uv: Path) -> Verdict:
    command = [str(uv), "tool", "run", "--quiet", "--from", PIP_AUDIT, "pip-audit", "--format", "json"]
    command += ["--progress-spinner", "off", "--disable-pip", "--require-hashes", "--requirement", "requirements.lock"]
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return Verdict((f"{NOT_AUDITED}: no answer within {PATIENCE:.0f} s",))
    return judge(done.stdout, done.stderr)


if __name__ == "__main__":
    verdict = audited(Path(sys.executable).with_name("uv"))
    print("\n".join(verdict.lines))
    sys.exit(verdict.code)
