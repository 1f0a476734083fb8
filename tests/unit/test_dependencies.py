"""The list of dependencies, and what an audit of them says."""

from __future__ import annotations

import json

import pytest

import sbom
from dependency_audit import NOT_AUDITED, judge

CLEAN = {"name": "fine", "version": "1.0", "vulns": []}
BAD = {"name": "bad", "version": "2.0", "vulns": [{"id": "CVE-1", "fix_versions": ["2.1"]}, {"id": "CVE-2"}]}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found"}


def report(*packages):
    return json.dumps({"dependencies": packages, "fixes": []})


def test_nothing_was_found():
    assert judge(report(CLEAN), "").lines == ("0 advisories for 1 of 1 packages",)
    assert judge(report(CLEAN), "").code == 0


def test_advisories_are_named_and_fail():
    verdict = judge(report(CLEAN, BAD, UNKNOWN), "")
    assert verdict.code == 1
    assert verdict.lines[:2] == ("bad 2.0: CVE-1, fixed in 2.1", "bad 2.0: CVE-2, fixed in no version yet")
    assert verdict.lines[2] == "2 advisories for 2 of 3 packages"


def test_what_could_not_be_asked_about_is_no_all_clear():
    verdict = judge(report(*[UNKNOWN] * 6), "No known vulnerabilities found")
    assert verdict.code == 0
    assert verdict.lines[0] == "0 advisories for 0 of 6 packages"
    assert verdict.lines[1].startswith(f"{NOT_AUDITED}: 6 packages")


@pytest.mark.parametrize("printed", ["", "Traceback", "[]", "{}"])
def test_a_service_that_is_not_reached_is_said(printed):
    verdict = judge(printed, "Traceback\n  File\nConnectionError: no route")
    assert verdict.code == 0
    assert verdict.lines == (f"{NOT_AUDITED}: advisories cannot be reached from here. ConnectionError: no route",)


def test_the_list_has_every_package_of_the_lock_with_its_hashes():
    bom = sbom.made()
    pinned = [line for line in sbom.LOCK.read_text().splitlines() if "==" in line.split(";")[0]]
    found = [one for one in bom["components"] if one.get("purl", "").startswith("pkg:pypi/")]
    assert len(found) == len(pinned)
    assert all(one["externalReferences"][0]["hashes"] for one in found)
    assert {"pyspark", "pydantic"} <= {one["name"] for one in found}
    assert "kafka-clients" in {one["name"] for one in bom["components"]}
    references = [one["bom-ref"] for one in bom["components"]]
    assert len(set(references)) == len(references)
    assert bom["dependencies"][0]["dependsOn"] == references


def test_the_same_lock_makes_the_same_list():
    assert sbom.made() == sbom.made()
    other = sbom.document("a==2 \\\n    --hash=sha256:" + "0" * 64, "", {"name": "m", "version": "1", "license": "x"})
    assert other["serialNumber"] != sbom.made()["serialNumber"]


def test_a_line_that_is_not_understood_is_not_left_out():
    with pytest.raises(ValueError, match="is no package with its hashes"):
        sbom.packages("git+https://example.org/x")
