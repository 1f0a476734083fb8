"""What executors get of an application."""

from __future__ import annotations

import os
import socket
import stat
import zipfile

import pytest
from typer.testing import CliRunner

from multilane.cli.main import app
from multilane.errors import ConfigError
from multilane.spark import packing
from multilane.spark.packing import pack


@pytest.fixture
def shop(tmp_path):
    directory = tmp_path / "shop"
    for name in ("consumers.py", "multilane.yaml", "deep/er/table.csv", "deep/__init__.py"):
        _write(directory / name, name)
    for left_out in (".env", ".git/config", "__pycache__/x.pyc", "old.pyc", "venv/pyvenv.cfg", "venv/lib/site.py"):
        _write(directory / left_out, "not for others")
    return directory


def _write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def test_modules_and_files_but_no_caches_secrets_or_environments(shop):
    archive = shop / "app.zip"
    for _ in range(2):  # the second time the archive itself lies there
        files = pack(shop, archive)
        with zipfile.ZipFile(archive) as packed:
            names = sorted(packed.namelist())
            assert packed.read("deep/er/table.csv") == b"deep/er/table.csv"
        assert names == ["consumers.py", "deep/__init__.py", "deep/er/table.csv", "multilane.yaml"]
        assert sorted(map(str, files)) == names
    assert not list(shop.glob(".*.part"))


def test_equal_content_makes_equal_archives(shop, tmp_path):
    pack(shop, tmp_path / "one.zip")
    (shop / "consumers.py").touch()
    pack(shop, tmp_path / "two.zip")
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_what_cannot_be_packed(shop, tmp_path):
    with pytest.raises(ConfigError, match=r"has to end with \.zip"):
        pack(shop, tmp_path / "app.tar")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="has no Python module"):
        pack(tmp_path / "empty", tmp_path / "app.zip")
    assert not (tmp_path / "app.zip").exists()


def test_the_command(shop, tmp_path):
    told = CliRunner().invoke(app, ["pack", str(tmp_path / "app.zip"), "--directory", str(shop)])
    assert told.exit_code == 0
    assert "app.zip: 4 files" in told.output


# --- what must not leave this machine ---------------------------------------------------------------------------------

PRIVATE = "-----BEGIN EC PRIVATE KEY-----\nMHcC\n-----END EC PRIVATE KEY-----\n"
KEY_LIKE = {
    "client.key": "x",
    "keys/server.pem": f"-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n{PRIVATE}",
    "settings.py": f'KEY = """{PRIVATE}"""',
    "secrets.yaml": "password: x",
    "deep/prod-secrets.json": "{}",
    "DB_PASSWORD.txt": "x",
    "credentials": "x",
    "prod.secrets": "x",
    "vault_password": "x",
    "client.p12": "x",
    "trust.JKS": "x",
    "prod.env": "PASSWORD=x",
    "id_ed25519": "x",
    "kafka.keytab": "x",
    "aws_credentials": "x",
    "api.token": "x",
    "secrets.yaml.bak": "x",
    "server.key.old": "x",
    "notes.txt": f"\ufeff{PRIVATE}".encode("utf-16-le"),
    "rsa.bin": bytes.fromhex("308204be020100300d06092a"),  # PKCS#8
    "rsa1.bin": bytes.fromhex("308204a40201000282010100"),
    "ec.bin": bytes.fromhex("307702010104 20f38a936630".replace(" ", "")),
    "ed25519.der": bytes.fromhex("302e020100300506032b6570"),
    "encrypted.der": bytes.fromhex("3082052d305706092a864886f70d01050d304a"),
    "store.bin": bytes.fromhex("308209cf0201033082098506092a"),  # PKCS#12
}


@pytest.mark.parametrize("name", KEY_LIKE)
def test_what_looks_like_a_key_is_refused_by_name(shop, tmp_path, name):
    _write(shop / name, KEY_LIKE[name])
    with pytest.raises(ConfigError, match=rf"^{name}: these look like keys"):
        pack(shop, tmp_path / "app.zip")
    assert sorted(tmp_path.iterdir()) == [shop]
    assert name in map(str, pack(shop, tmp_path / "app.zip", allow=[name]))
    assert name not in map(str, pack(shop, tmp_path / "app.zip", exclude=[name]))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ca.pem", "-----BEGIN CERTIFICATE-----\nMII\n-----END CERTIFICATE-----\n"),
        ("secret_santa.py", "import secrets"),
        ("monkey.csv", "a,b"),
        ("ca.der", bytes.fromhex("308202f9308201e1a003020102")),
        ("tokens.py", "BEGIN = '-----BEGIN CERTIFICATE-----'"),
    ],
)
def test_what_only_sounds_like_one_is_packed(shop, tmp_path, name, text):
    _write(shop / name, text)
    assert name in map(str, pack(shop, tmp_path / "app.zip"))


def test_a_configuration_with_a_password_in_clear_is_refused_with_its_line(shop, tmp_path):
    _write(shop / "conf" / "prod.cfg", "clusters:\n  k:\n    brokers: b\n    properties: {sasl.password: hunter2}\n")
    with pytest.raises(
        ConfigError, match=r"^conf/prod\.cfg:4 \(clusters\.k\.properties\..sasl\.password.\): "
    ) as raised:
        pack(shop, tmp_path / "app.zip")
    assert "hunter2" not in str(raised.value)
    assert "${NAME}" in str(raised.value)
    assert sorted(tmp_path.iterdir()) == [shop]
    assert pack(shop, tmp_path / "app.zip", allow=["prod.cfg"])
    assert pack(shop, tmp_path / "app.zip", exclude=["conf"])
    _write(shop / "conf" / "prod.cfg", "clusters: {k: {brokers: b, properties: {sasl.password: '${PASSWORD}'}}}\n")
    assert pack(shop, tmp_path / "app.zip")


def test_links_that_lead_out_are_refused_by_name(shop, tmp_path):
    _write(tmp_path / "outside" / "data.csv", "not for others")
    (shop / "deep" / "link.csv").symlink_to(tmp_path / "outside" / "data.csv")
    (shop / "folder").symlink_to(tmp_path / "outside")
    with pytest.raises(ConfigError, match=r"^deep/link\.csv, folder: links lead out of .*--exclude"):
        pack(shop, tmp_path / "app.zip")
    assert not (tmp_path / "app.zip").exists()
    assert pack(shop, tmp_path / "app.zip", exclude=["folder", "*.csv"])


def test_a_link_to_what_sounds_like_a_key_is_refused_whatever_its_own_name(shop, tmp_path):
    (shop / "settings.txt").symlink_to(shop / ".env")
    with pytest.raises(ConfigError, match=r"settings\.txt: these look like keys"):
        pack(shop, tmp_path / "app.zip")


def test_a_link_to_a_hidden_file_of_passwords_is_refused(shop, tmp_path):
    _write(shop / ".netrc", "x")
    (shop / "hosts.txt").symlink_to(shop / ".netrc")
    with pytest.raises(ConfigError, match=r"hosts\.txt: these look like keys"):
        pack(shop, tmp_path / "app.zip")


def test_a_file_that_becomes_a_link_meanwhile_is_not_followed(shop, tmp_path, monkeypatch):
    _write(tmp_path / "outside.txt", "not for others")
    read = packing._packed

    def swapped(*told):
        (shop / "multilane.yaml").unlink()
        (shop / "multilane.yaml").symlink_to(tmp_path / "outside.txt")
        return read(*told)

    monkeypatch.setattr(packing, "_packed", swapped)
    with pytest.raises(ConfigError, match=r"multilane\.yaml: links lead out"):
        pack(shop, tmp_path / "app.zip")
    assert not (tmp_path / "app.zip").exists()


def test_links_that_stay_inside_are_files_and_directories_are_not_linked(shop, tmp_path):
    (shop / "same.csv").symlink_to("deep/er/table.csv")
    (shop / "dead").symlink_to("nowhere")
    pack(shop, tmp_path / "app.zip")
    with zipfile.ZipFile(tmp_path / "app.zip") as packed:
        assert packed.read("same.csv") == b"deep/er/table.csv"
        assert "dead" not in packed.namelist()
    (shop / "again").symlink_to("deep")
    with pytest.raises(ConfigError, match=r"^again: links to directories are not packed"):
        pack(shop, tmp_path / "app.zip")


def test_only_regular_files_are_packed(shop, tmp_path):
    os.mkfifo(shop / "pipe")  # who opens it waits for ever
    with socket.socket(socket.AF_UNIX) as control:
        control.bind(str(shop / "control"))
        files = pack(shop, tmp_path / "app.zip")
    assert not {"pipe", "control"} & set(map(str, files))


def test_the_archive_is_its_users_alone(shop, tmp_path):
    archive = tmp_path / "app.zip"
    before = os.umask(0)
    try:
        archive.touch(mode=0o666)
        pack(shop, archive)
    finally:
        os.umask(before)
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600


@pytest.mark.parametrize("failure", [OSError("no space left"), KeyboardInterrupt(), SystemExit(143)])
def test_a_pack_that_fails_leaves_the_old_archive_and_nothing_else(shop, tmp_path, monkeypatch, failure):
    archive = tmp_path / "app.zip"
    pack(shop, archive)
    whole = archive.read_bytes()
    (shop / "consumers.py").write_text("changed")

    def fail(file):
        raise failure

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(type(failure)):
        pack(shop, archive)
    assert archive.read_bytes() == whole
    assert sorted(tmp_path.iterdir()) == [archive, shop]
