"""Data directories that a broker takes for formatted."""

from __future__ import annotations

import base64

import pytest

from multilane.dev import formatting
from multilane.errors import DevKafkaError


def test_formatted_directory(tmp_path):
    checkpoint = tmp_path / "bootstrap.checkpoint"
    checkpoint.write_bytes(b"features")
    data = tmp_path / "node-2" / "data"
    assert formatting.cluster_id_of(data) is None
    formatting.format_directory(data, checkpoint, cluster_id="abc", node_id=2)
    assert formatting.cluster_id_of(data) == "abc"
    assert (data / "bootstrap.checkpoint").read_bytes() == b"features"
    assert "node.id=2\n" in (data / "meta.properties").read_text()


def test_a_foreign_file_is_an_error(tmp_path):
    (tmp_path / "meta.properties").write_text("version=1\n")
    with pytest.raises(DevKafkaError, match=r"has no cluster\.id"):
        formatting.cluster_id_of(tmp_path)


def test_ids_are_kafkas():
    made = {formatting.random_uuid() for _ in range(300)}
    assert len(made) == 300
    assert not any(text.startswith("-") for text in made)
    assert all(len(base64.urlsafe_b64decode(text + "==")) == 16 for text in made)
