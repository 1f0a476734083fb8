"""Writes files and reads their problems."""

from __future__ import annotations

import pytest

from multilane.config.app.loading import load
from multilane.errors import ConfigProblems


@pytest.fixture
def written(tmp_path):
    """Writes texts as files named one.yaml, two.yaml, ... and returns their paths."""

    def write(*texts):
        names = ["one.yaml", "two.yaml", "three.yaml", "four.yaml"]
        paths = []
        for name, text in zip(names, texts, strict=False):
            path = tmp_path / name
            path.write_bytes(text if isinstance(text, bytes) else text.encode())
            paths.append(path)
        return paths

    return write


@pytest.fixture
def loaded(written):
    def read(*texts, profile=None, env=None):
        return load(written(*texts), profile, env or {})

    return read


@pytest.fixture
def problems(written):
    """The problems of files, as (line, path, what, fix)."""

    def read(*texts, profile=None, env=None):
        with pytest.raises(ConfigProblems) as caught:
            load(written(*texts), profile, env or {})
        return [(p.location.line, p.path, p.what, p.fix) for p in caught.value.problems]

    return read
