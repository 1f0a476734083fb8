"""Files that are not a configuration: always a ConfigError with a location, never a crash, never a long wait."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multilane.config.app.files.tree import MOST_NODES
from multilane.config.app.loading import load
from multilane.errors import ConfigError, ConfigProblems
from unit.config.app import samples

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)
MERGED_LAUGHS = "a0: &a0 {k: {x: 1}}\n" + "".join(
    f"a{n}: &a{n} {{p: *a{n - 1}, q: *a{n - 1}, r: *a{n - 1}, s: *a{n - 1}}}\n" for n in range(1, 12)
)
BEFORE = """\
clusters: {k: {clientId: c, brokers: b}}
consumers:
  c:
    groupId: g
    name: t
    cluster: k
    retry: r
"""


@pytest.mark.parametrize(
    ("data", "line", "what"),
    [
        ("[" * 400_000, 1, "levels are nested"),
        ("{a: " * 100_000, 1, "levels are nested"),
        ("- " * 100_000, 1, "levels are nested"),
        ("a:\n" + "".join(" " * n + "b:\n" for n in range(1, 400)), 41, "levels are nested"),
        (LAUGHS, 5, "more than 50000 values"),
        (MERGED_LAUGHS, 8, "more than 50000 values"),
        ("x: [" + "y, " * (MOST_NODES + 1) + "]", 1, "more than 50000 values"),
        ("a: &a [*a]", 1, "this refers to an anchor that is not complete"),
        ("a: *nobody", 1, "this refers to an anchor that is not complete"),
        ("k:\n\tclientId: x", 2, "not valid YAML"),
        ("a: b: c", 1, "not valid YAML"),
        ("a: 'x", 1, "not valid YAML"),
        ("a: [1, 2", 1, "not valid YAML"),
        ("a: }", 1, "not valid YAML"),
        ("%YAML 3.0\n---\na: 1", 1, "not valid YAML"),
        ("a: !!python/object/apply:os.system ['true']", 1, "this is a YAML tag, and tags are not supported"),
        ("a: !!binary aGk=", 1, "this is a YAML tag"),
        ("a: !mine 5", 1, "this is a YAML tag"),
        ("? [a]\n: b", 1, "a key is a list"),
        ("? {a: b}\n: b", 1, "a key is a list"),
        ("x: &x [1]\n*x : b", 2, "a key is a list"),
        ("a: 1\n---\nb: 2", 2, "a second document"),
        ("- a\n- b", 1, "not a mapping"),
        ("just words", 1, "not a mapping"),
        ("a: {<<: 5}", 1, "<< merges mappings"),
        (b"a: \xff\xfe", 1, "not UTF-8"),
        (b"a: 1\nb: \xc3(", 2, "not UTF-8"),
        ("a: 1\nb: \x00", 2, "control character"),
        ("a: \x1b[2J", 1, "control character"),
        (b"#" * (512 * 1024 + 1), 0, "more than 524288 bytes"),
    ],
)
def test_invalid_files(data, line, what, problems):
    reported = problems(data)
    assert (reported[0][0], len(reported)) == (line, 1)
    assert what in reported[0][2]


@pytest.mark.parametrize(
    "digits", ["9" * 5000, "-" + "9" * 5000, "1e999999", "0x" + "f" * 4000, "1_000", "12:30:45", ".inf"]
)
@pytest.mark.parametrize(
    "key", ["retryCount", "virtualPartitionCount", "sessionTimeout", "fetchMaxBytes", "errorBreaker: {share"]
)
def test_huge_and_odd_numbers(key, digits, problems):
    end = "}" if "{" in key else ""
    reported = problems(f"{BEFORE}    {key}: {digits}{end}\n")
    assert len(reported) == 1
    assert reported[0][0] == 8
    assert len(reported[0][2]) < 200


@pytest.mark.parametrize(
    "value", ["[]", "{}", "[[x]]", "{a: {b: c}}", "2026-01-01", "!!str 5", "''", "~", "'a\\nb'", '"\\u0007"']
)
def test_any_type_under_any_key(value, written):
    """Each key of each section with a value of another shape: accepted, or refused with a location in its line."""
    keys = [
        line.strip().partition(":")[0] for line in samples.WHOLE.splitlines() if line.startswith("    ") and ":" in line
    ]
    for key in dict.fromkeys(keys):
        more = f"{key}: {value}"
        cluster = f"clusters: {{k: {{clientId: c, brokers: b, {more}}}}}"
        text = f"{cluster}\nconsumers: {{c: {{groupId: g, name: t, cluster: k, {more}}}}}"
        assert all(problem.location.line in (1, 2) for problem in refused(written(text)))


@pytest.mark.parametrize(
    "text",
    [
        "".join(f"k{n}: {{b{n}: 1}}\n" for n in range(4_000)),
        "consumers:\n" + "".join(f" k{n}: {{b{n}: 1}}\n" for n in range(4_000)),
        "consumers:\n c:\n" + "".join(f"  groupIb{n}: 1\n" for n in range(5_000)),
        "consumers:\n c:\n  groupId: g\n  properties:\n" + "".join(f"   a.b{n}: ${{X}}\n" for n in range(4_000)),
        "producers:\n" + "".join(f" p{n}: {{name: t, cluster: c{n}}}\n" for n in range(500))
        + "clusters:\n" + "".join(f" k{n}: {{clientId: t, brokers: c{n}}}\n" for n in range(500)),
        "clusters: {k: {clientId: c, brokers: '" + "a," * 100_000 + "x:y'}}",
        "k:\n" + "".join(f" a: {n}\n" for n in range(5_000)),
    ],
    ids=["entries", "unknown keys", "keys", "properties", "references", "brokers", "duplicates"],
)  # fmt: skip
@pytest.mark.timeout(30)  # each takes a second; without the limits it would be minutes
def test_much_of_everything_wrong(text, written):
    found = refused(written(text), env={"X": "geheim"})
    assert 0 < len(found) <= 501
    assert len("".join(map(str, found))) < 1_000_000


def test_names_that_cannot_be_shown(problems):
    reported = problems('producers: {"a\\e[2J": {name: t, cluster: k}, "": {name: t, cluster: k}, "a\\nb": 5}')
    assert [what for _, _, what, _ in reported].count("this name is empty, too long or not printable") == 2
    assert all(text.isprintable() for _, *texts in reported for text in texts)


def test_a_section_for_anchors(loaded):
    text = "x-all: &all {cluster: k}\nclusters: {k: {clientId: c, brokers: b}}\nproducers: {p: {<<: *all, name: t}}"
    assert loaded(text).config.producer("p").cluster == "k"


def test_files_that_cannot_be_read(tmp_path):
    for path in (tmp_path / "absent.yaml", tmp_path, "nul\0name"):
        with pytest.raises(ConfigError, match="cannot be read"):
            load(path, env={})


def test_a_byte_order_mark_and_line_ends_of_windows(loaded):
    text = "k:\r\n  clientId: c\r\n  brokers:\r\n    a,\r\n    b,\r\n"
    assert loaded(b"\xef\xbb\xbf" + text.encode()).config.cluster("k").brokers == ("a:9092", "b:9092")


_WORDS = st.sampled_from(
    ["clusters", "consumers", "profiles", "k", "clientId", "brokers", "groupId", "name", "cluster", "properties",
     "retry", "errorConfig", "cron", "${A}", "${", "$${", "<<", "&a ", "*a", "- ", ": ", "\n", "\n  ", "\n    ",
     "{", "}", "[", "]", ", ", "'", '"', "|", ">", "#", "!", "%", "@", "`", "\t", "5m", "1mb",
     "5", "~", "\u00e9", "?", "---", "..."]
)  # fmt: skip


@given(st.lists(_WORDS, max_size=60).map("".join))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
def test_any_text_is_read_or_refused(tmp_path, text):
    _read_or_refuse(tmp_path, text.encode())


@given(st.integers(0, len(samples.WHOLE) - 1), st.binary(max_size=4), st.integers(0, 8))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
def test_a_good_file_with_a_bad_spot(tmp_path, start, put, cut):
    data = samples.WHOLE.encode()
    _read_or_refuse(tmp_path, data[:start] + put + data[start + cut :])


def _read_or_refuse(tmp_path, data):
    path = tmp_path / "any.yaml"
    path.write_bytes(data)
    for profile in (None, "stage"):
        found = refused(path, profile, {"A": "x: [1"})
        assert all(problem.what and problem.fix and problem.location.file for problem in found)


def refused(files, profile=None, env=None):
    """The problems of files; any exception other than ConfigProblems fails the test."""
    try:
        load(files, profile, env or {})
    except ConfigProblems as error:
        return error.problems or ["an error without problems"]
    return ()


@pytest.mark.parametrize("password", ["!hunter2secret", "*hunter2secret", "!!hunter2secret"])
def test_a_password_that_looks_like_yaml_is_not_shown(password, problems):
    reported = problems(f"clusters:\n  k:\n    auth:\n      password: {password}\n")
    assert "hunter2secret" not in str(reported)
    assert "or quote a string" in str(reported)
