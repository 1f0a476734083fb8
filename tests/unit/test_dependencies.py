"""The list of dependencies, and what an audit of them says. pip-audit is the real one; its service answers here."""

from __future__ import annotations

import json
import threading
import tomllib
from contextlib import contextmanager
from datetime import date
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import sbom
from dependency_audit import KNOWN_VULNERABLE, NOT_AUDITED, ROOT, Accepted, accepted_of, audited, judge

TODAY = date(2026, 5, 1)
CLEAN = {"name": "fine", "version": "1.0", "vulns": []}
BAD = {
    "name": "bad",
    "version": "2.0",
    "vulns": [
        {"id": "PYSEC-1", "fix_versions": ["2.1"], "aliases": ["CVE-1"]},
        {"id": "PYSEC-2", "fix_versions": [], "aliases": []},
    ],
}
UNKNOWN = {"name": "unknown", "skip_reason": "Dependency not found"}
FIRST = Accepted("CVE-1", "bad", "not called", date(2026, 6, 1))
SECOND = Accepted("PYSEC-2", "bad", "not called either", date(2026, 6, 1))


def report(*packages):
    return json.dumps({"dependencies": packages, "fixes": []})


def judged(*packages, accepted=()):
    return judge(report(*packages), "", accepted, TODAY)


def test_nothing_was_found():
    assert judged(CLEAN).lines == ("0 advisories for 1 of 1 packages",)
    assert judged(CLEAN).code == 0


def test_advisories_are_named_and_fail():
    verdict = judged(CLEAN, BAD, UNKNOWN)
    assert verdict.code == 1
    assert verdict.lines[:2] == ("bad 2.0: PYSEC-1, fixed in 2.1", "bad 2.0: PYSEC-2, fixed in no version yet")
    assert verdict.lines[2] == "2 advisories for 2 of 3 packages"


def test_accepted_advisories_are_named_with_their_reason_and_do_not_fail():
    verdict = judged(BAD, accepted=[FIRST, SECOND])
    assert verdict.code == 0
    assert verdict.lines[0] == "accepted until 2026-06-01: bad 2.0: PYSEC-1, fixed in 2.1: not called"
    assert verdict.lines[-1] == "0 advisories for 1 of 1 packages, and 2 accepted"


def test_only_the_accepted_advisory_of_that_package_passes():
    assert judged(BAD, accepted=[FIRST]).code == 1
    assert judged(BAD, accepted=[Accepted("CVE-1", "other", "x", FIRST.until), SECOND]).code == 1


def test_an_advisory_fails_again_from_its_day_on():
    verdict = judged(BAD, accepted=[Accepted("CVE-1", "bad", "not called", TODAY), SECOND])
    assert verdict.code == 1
    assert "bad 2.0: PYSEC-1, fixed in 2.1; it was accepted until 2026-05-01 only: not called" in verdict.lines


def test_what_is_accepted_and_no_longer_found_is_said_if_all_were_audited():
    assert "no longer found, remove it from pyproject.toml: bad CVE-1" in judged(CLEAN, accepted=[FIRST]).lines
    assert not any("no longer" in line for line in judged(CLEAN, UNKNOWN, accepted=[FIRST]).lines)


@pytest.mark.parametrize("changed", [{"reason": " "}, {"until": "2030-01-31"}, {"extra": 1}])
def test_an_advisory_is_accepted_with_reason_and_day(changed):
    entry = {"id": "CVE-1", "package": "bad", "reason": "why", "until": date(2030, 1, 31)}
    assert accepted_of([entry]) == (Accepted(**entry),)
    with pytest.raises(ValueError, match="is not of the form"):
        accepted_of([entry | changed])


def test_the_accepted_advisories_of_this_repository_have_the_form():
    accepted_of(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["dependency-audit"]["accepted"])


def test_what_could_not_be_asked_about_is_no_all_clear():
    verdict = judged(*[UNKNOWN] * 6)
    assert verdict.code == 0
    assert not verdict.is_complete
    assert verdict.lines[0] == "0 advisories for 0 of 6 packages"
    assert verdict.lines[1].startswith(f"{NOT_AUDITED}: 6 packages")


@pytest.mark.parametrize("printed", ["", "Traceback", "[]", "{}"])
def test_an_audit_that_broke_off_is_said(printed):
    verdict = judge(printed, "Traceback\n  File\nConnectionError: no route", (), TODAY)
    assert verdict.code == 0
    assert verdict.lines == (f"{NOT_AUDITED}: the advisory service cannot be reached. ConnectionError: no route",)


@contextmanager
def service(advisories):
    """An advisory service of the form of OSV on this machine, which knows these: package and version to id."""

    class Answers(BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            name = asked["package"]["name"]
            known = advisories.get(f"{name}=={asked['version']}")
            affected = {"package": asked["package"], "ranges": []}
            body = json.dumps({"vulns": [{"id": known, "affected": [affected]}]} if known else {}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield ["--vulnerability-service", "osv", "--osv-url", f"http://127.0.0.1:{server.server_port}"]
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def lock(tmp_path):
    path = tmp_path / "requirements.lock"
    lines = (f"{name}==1.0 \\\n    --hash=sha256:{'0' * 64}\n" for name in ("bad", "fine"))
    path.write_text("".join(lines))
    return path


def test_pip_audit_finds_an_advisory_for_a_locked_package(lock):
    with service({KNOWN_VULNERABLE: "PYSEC-0", "bad==1.0": "PYSEC-1"}) as options:
        verdict = audited(options, lock, (), TODAY)
    assert verdict.lines == (
        "bad 1.0: PYSEC-1, fixed in no version yet",
        "1 advisories for 2 of 2 packages",
    )
    assert verdict.code == 1


def test_a_service_without_advisories_is_not_believed(lock):
    with service({}) as options:
        verdict = audited(options, lock, (), TODAY)
    assert verdict.code == 0
    assert not verdict.is_complete
    assert verdict.lines[0].startswith(f"{NOT_AUDITED}: the service names no advisory for {KNOWN_VULNERABLE}")


def test_a_service_that_is_not_there_is_said(lock):
    with service({}) as options:
        pass
    verdict = audited(options, lock, (), TODAY)
    assert verdict.code == 0
    assert verdict.lines[0].startswith(f"{NOT_AUDITED}: the advisory service cannot be reached. ")


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
