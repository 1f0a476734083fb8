"""Where an application's configuration comes from: files or a loaded one, a profile, and properties from the code.

Thread: any.

Owns nothing that changes: each loading reads the files again. Never connects.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from multilane.config.app.kafka_names import fault, given_properties, owner
from multilane.config.app.loading import MEMBER_VARIABLE, FilePath, load_app
from multilane.config.app.model import AppConfig
from multilane.errors import ConfigError, ConfigProblems


class ConfigSource:
    def __init__(
        self,
        files: FilePath | Iterable[FilePath] | AppConfig,
        profile: str | None,
        properties: Mapping[str, object] | None,
    ) -> None:
        self._files = files if isinstance(files, AppConfig | str | os.PathLike) else tuple(files)
        self._profile = profile
        self._properties = properties or {}

    def load(self) -> AppConfig:
        return self._load(os.environ)

    def load_for(self, member: int) -> AppConfig | None:
        """The configuration as the member with this number reads it; None if it does not come from files."""
        if isinstance(self._files, AppConfig):
            return None
        return self._load({**os.environ, MEMBER_VARIABLE: str(member)})

    def _load(self, env: Mapping[str, str]) -> AppConfig:
        files = self._files
        loaded = files if isinstance(files, AppConfig) else load_app(files, self._profile, env)
        return _with_properties(loaded, self._properties)


def _with_properties(config: AppConfig, properties: Mapping[str, object]) -> AppConfig:
    """Add these properties to every cluster. A cluster's own properties win."""
    if not properties:
        return config
    given = given_properties(properties)
    problems = [problem for key, value in given.items() if (problem := fault(key, value))]
    if problems:
        raise ConfigProblems(problems)
    if any(owner(key) == "bootstrap.servers" for key in given):
        raise ConfigError("properties: leave out bootstrap.servers; it comes from the `brokers` of each cluster")
    clusters = {
        name: cluster.model_copy(update={"properties": {**given, **cluster.properties}})
        for name, cluster in config.clusters.items()
    }
    return config.model_copy(update={"clusters": clusters})
