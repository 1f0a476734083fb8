"""`make sbom`: everything that the lock and the jars' checksums name, as a CycloneDX document. Needs no network.

The same files make the same document: it has no time in it, and its serial number comes from its content.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
import uuid
from pathlib import Path
from typing import Any

from multilane.version import __version__

ROOT = Path(__file__).parents[1]
LOCK = ROOT / "requirements.lock"
_PACKAGE = re.compile(
    r"^(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?==(?P<version>[^\s;\\]+)(?:\s*;\s*(?P<marker>[^\\]+?))?\s*\\?$"
)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_JAR = re.compile(r"^([0-9a-f]{64})  (.+)-(\d[^-]*(?:-[\w.]+)?)\.jar$")


def packages(lock: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for line in lock.splitlines():
        if (match := _PACKAGE.match(line)) is not None:
            found.append(_package(**match.groupdict()))
        elif (digest := _HASH.search(line)) is not None:
            found[-1]["externalReferences"][0]["hashes"].append({"alg": "SHA-256", "content": digest[1]})
        elif line.strip() and not line.startswith("#"):
            raise ValueError(f"requirements.lock: {line!r} is no package with its hashes")
    return found


def _package(name: str, version: str, marker: str | None) -> dict[str, Any]:
    purl = f"pkg:pypi/{name.lower().replace('_', '-')}@{version}"
    made: dict[str, Any] = {
        "type": "library",
        "bom-ref": f"{purl}?{marker}" if marker else purl,
        "name": name,
        "version": version,
        "purl": purl,
        "externalReferences": [{"type": "distribution", "url": purl, "hashes": []}],
    }
    return made | ({"properties": [{"name": "multilane:marker", "value": marker}]} if marker else {})


def jars(sums: str) -> list[dict[str, Any]]:
    """Of the Kafka that `multilane dev kafka` fetches."""
    found = []
    for digest, name, version in (_JAR.match(line).groups() for line in sums.splitlines()):  # type: ignore[union-attr]
        hashes = [{"alg": "SHA-256", "content": digest}]
        made = {"type": "library", "bom-ref": f"jar:{name}-{version}", "name": name, "version": version}
        found.append(made | {"scope": "optional", "hashes": hashes})
    return found


def document(lock: str, sums: str, project: dict[str, Any]) -> dict[str, Any]:
    components = [*packages(lock), *jars(sums)]
    content = json.dumps([project["name"], project["version"], components], sort_keys=True)
    root = {"type": "library", "bom-ref": "multilane", "name": project["name"], "version": project["version"]}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, content)}",
        "version": 1,
        "metadata": {"component": root | {"licenses": [{"license": {"id": project["license"]}}]}},
        "components": components,
        "dependencies": [{"ref": "multilane", "dependsOn": [one["bom-ref"] for one in components]}],
    }


def made() -> dict[str, Any]:
    [sums] = ROOT.glob("src/multilane/dev/kafka-*.sha256")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return document(LOCK.read_text(), sums.read_text(), project | {"version": __version__})


if __name__ == "__main__":
    target = Path(sys.argv[1])
    bom = made()
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(bom, indent=2) + "\n")
    print(f"{target}: {len(bom['components'])} components")
