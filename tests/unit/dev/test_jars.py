"""The installation in the cache: whole, unchanged, or an error that says which file."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from multilane.dev import formatting, ivy, jars
from multilane.errors import DamagedJars, DevKafkaError
from multilane.java import Java

JAVA = Java(Path("/no/java"), 17)
FILES = {"a-1.jar": b"first", "b-2.jar": b"second"}


def sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def source(monkeypatch):
    """Stands for the network: what Ivy fetches, and how often it was asked."""
    content = dict(FILES)
    asked = []

    def retrieve(java, target, work, step):
        asked.append(target)
        for name, data in content.items():
            (target / name).write_bytes(data)
            step()

    monkeypatch.setattr(ivy, "retrieve", retrieve)
    monkeypatch.setattr(formatting, "make_checkpoint", lambda java, new, work, target: target.write_bytes(b"features"))
    monkeypatch.setattr(jars, "pinned", lambda: {name: sha(data) for name, data in FILES.items()})
    return content, asked


@pytest.fixture
def place(tmp_path):
    return tmp_path / "cache" / "kafka-4.3.1"


def test_fetched_once(source, place):
    _, asked = source
    first = jars.installed(JAVA, place)
    assert first == jars.installed(JAVA, place)
    assert len(asked) == 1
    assert {path.name for path in place.iterdir()} == {*FILES, jars.CHECKPOINT, jars.MANIFEST}
    assert {path.name for path in place.parent.iterdir()} == {place.name, place.name + ".lock"}


@pytest.mark.parametrize("name", ["a-1.jar", "b-2.jar", jars.CHECKPOINT])
def test_a_changed_file_is_named(source, place, name):
    jars.installed(JAVA, place)
    (place / name).write_bytes(b"tampered")
    with pytest.raises(DamagedJars, match=rf"{name} was changed.*fetch-jars"):
        jars.installed(JAVA, place)


def test_a_missing_file_is_named(source, place):
    jars.installed(JAVA, place)
    (place / "b-2.jar").unlink()
    with pytest.raises(DamagedJars, match=r"b-2\.jar is missing"):
        jars.installed(JAVA, place)


def test_a_foreign_jar_on_the_class_path_is_named(source, place):
    jars.installed(JAVA, place)
    (place / "z.jar").write_bytes(b"")
    with pytest.raises(DamagedJars, match=r"z\.jar does not belong"):
        jars.installed(JAVA, place)


def test_jar_and_manifest_changed_together_do_not_pass(source, place):
    jars.installed(JAVA, place)
    (place / "a-1.jar").write_bytes(b"tampered")
    manifest = place / jars.MANIFEST
    manifest.write_text(manifest.read_text().replace(sha(FILES["a-1.jar"]), sha(b"tampered")))
    with pytest.raises(DamagedJars, match=r"does not name the pinned a-1\.jar"):
        jars.installed(JAVA, place)


def test_a_foreign_jar_that_the_manifest_names_does_not_pass(source, place):
    jars.installed(JAVA, place)
    (place / "evil.jar").write_bytes(b"evil")
    manifest = place / jars.MANIFEST
    manifest.write_text(manifest.read_text() + f"{sha(b'evil')}  evil.jar\n")
    with pytest.raises(DamagedJars, match=r"names evil\.jar, which does not belong there"):
        jars.installed(JAVA, place)


@pytest.mark.parametrize("text", [None, "one two three\n", "\x00"])
def test_a_manifest_that_cannot_be_read(source, place, text):
    jars.installed(JAVA, place)
    (place / jars.MANIFEST).unlink()
    if text is not None:
        (place / jars.MANIFEST).write_text(text)
    with pytest.raises(DamagedJars, match="cannot be read"):
        jars.installed(JAVA, place)


def test_fetch_replaces_what_is_damaged(source, place):
    jars.installed(JAVA, place)
    (place / "a-1.jar").write_bytes(b"tampered")
    jars.fetch(JAVA, place)
    assert (place / "a-1.jar").read_bytes() == FILES["a-1.jar"]
    jars.verify(place)


@pytest.mark.parametrize("change", [{"a-1.jar": b"other"}, {"c-3.jar": b"new"}])
def test_only_pinned_jars_are_installed(source, place, change):
    content, _ = source
    content.update(change)
    with pytest.raises(DamagedJars, match=f"not what multilane pins: {next(iter(change))}"):
        jars.installed(JAVA, place)
    assert not place.exists()


def test_a_failed_fetch_leaves_nothing(source, place, monkeypatch):
    def fail(java, target, work, step):
        (target / "a-1.jar").write_bytes(FILES["a-1.jar"])
        raise DevKafkaError("no network")

    monkeypatch.setattr(ivy, "retrieve", fail)
    with pytest.raises(DevKafkaError, match="no network"):
        jars.installed(JAVA, place)
    assert {path.name for path in place.parent.iterdir()} == {place.name + ".lock"}


def test_whoever_waited_for_the_lock_does_not_fetch_again(source, place, monkeypatch):
    _, asked = source
    original = jars._lock

    def while_waiting(directory):
        # Between the first look and the lock, another process finishes the same work.
        monkeypatch.setattr(jars, "_lock", original)
        jars.installed(JAVA, place)
        return original(directory)

    monkeypatch.setattr(jars, "_lock", while_waiting)
    jars.installed(JAVA, place)
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"MULTILANE_CACHE": "/m", "XDG_CACHE_HOME": "/x"}, "/m/kafka-4.3.1"),
        ({"XDG_CACHE_HOME": "/x"}, "/x/multilane/kafka-4.3.1"),
        ({"XDG_CACHE_HOME": "relative"}, f"{Path.home()}/.cache/multilane/kafka-4.3.1"),
        ({}, f"{Path.home()}/.cache/multilane/kafka-4.3.1"),
    ],
)
def test_cache_directory(environ, expected):
    assert jars.cache_directory(environ) == Path(expected)


def test_the_pins_are_whole():
    pins = jars.pinned()
    assert "kafka_2.13-4.3.1.jar" in pins
    assert "kafka-tools-4.3.1.jar" in pins
    assert all(len(digest) == 64 and int(digest, 16) for digest in pins.values())


@pytest.mark.parametrize(
    ("environ", "flags"),
    [
        ({}, []),
        ({"NO_PROXY": "localhost"}, []),
        ({"HTTPS_PROXY": "http://proxy:3128"}, ["-Dhttps.proxyHost=proxy", "-Dhttps.proxyPort=3128"]),
        ({"http_proxy": "proxy:80"}, ["-Dhttp.proxyHost=proxy", "-Dhttp.proxyPort=80"]),
        (
            {"https_proxy": "http://p:1", "no_proxy": "localhost, .example.org"},
            ["-Dhttps.proxyHost=p", "-Dhttps.proxyPort=1", "-Dhttp.nonProxyHosts=localhost|*.example.org"],
        ),
    ],
)
def test_proxy_variables_become_java_flags(environ, flags):
    assert ivy.proxy_flags(environ) == flags
