"""What executors get of an application."""

from __future__ import annotations

import zipfile

import pytest
from typer.testing import CliRunner

from multilane.cli.main import app
from multilane.errors import ConfigError
from multilane.spark.packing import pack


@pytest.fixture
def shop(tmp_path):
    directory = tmp_path / "shop"
    for name in ("consumers.py", "multilane.yaml", "deep/er/table.csv", "deep/__init__.py"):
        _write(directory / name, name)
    for left_out in (".env", ".git/config", "__pycache__/x.pyc", "old.pyc", "venv/pyvenv.cfg", "venv/lib/site.py"):
        _write(directory / left_out, "not for others")
    return directory


def _write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


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
