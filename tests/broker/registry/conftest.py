"""Schema registries for tests: a real one for a session, and one of ours that fails as told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import apicurio
from registry_server import RegistryServer


@pytest.fixture(scope="session")
def registry(tmp_path_factory) -> Iterator[str]:
    """The address of a real registry."""
    with apicurio.running(tmp_path_factory.mktemp("apicurio")) as address:
        yield address


@pytest.fixture
def scripted() -> Iterator[RegistryServer]:
    with RegistryServer() as server:
        yield server
