"""Jars of the systems that ours is compared with: fetched once, and used only if their checksums match.

Thread: application.

Ivy fetches them as it does for the embedded Kafka. They are stored in the user's cache, and refused unless all of them
match a list of checksums in the repository.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from multilane.dev import ivy
from multilane.java import Java
from multilane.user_cache import user_cache

_FETCH_SECONDS: Final = 600


@dataclass(frozen=True, slots=True)
class Dependency:
    org: str
    name: str
    rev: str
    transitive: bool = True

    def __str__(self) -> str:
        return (
            f'<dependency org="{self.org}" name="{self.name}" rev="{self.rev}" conf="default->default" '
            f'transitive="{str(self.transitive).lower()}"/>'
        )


@dataclass(frozen=True, slots=True)
class RivalJars:
    """The name of the set, its dependencies, and the file with the checksums."""

    name: str
    dependencies: tuple[Dependency, ...]
    sums: Path

    def installed(self, java: Java, directory: Path | None = None) -> Path:
        """The directory with the jars; fetches them if missing, refuses them if their checksums differ."""
        directory = user_cache() / self.name if directory is None else directory
        if not directory.exists():
            directory.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryDirectory(prefix="fetch-", dir=directory.parent) as work:
                self.fetch(java, Path(work, "new"), Path(work))
                Path(work, "new").rename(directory)
        self.check(directory)
        return directory

    def fetch(self, java: Java, target: Path, work: Path) -> None:
        modules = work / "ivy.xml"
        modules.write_text(self._modules())
        command = [str(java.program), *ivy.proxy_flags(os.environ), f"-Divy.default.ivy.user.dir={work / 'user'}"]
        command += ["-jar", str(ivy.ivy_jar()), "-cache", str(work / "cache"), "-ivy", str(modules)]
        command += ["-confs", "default"]
        if settings := os.environ.get("MULTILANE_IVY_SETTINGS"):
            command += ["-settings", settings]
        command += ["-retrieve", f"{target}/[artifact]-[revision](-[classifier]).[ext]"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS)
        if done.returncode:
            raise RuntimeError(f"Ivy cannot fetch {self.name}:\n{done.stdout[-2_000:]}")

    def _modules(self) -> str:
        lines = ['<ivy-module version="2.0">', f'<info organisation="multilane" module="{self.name}"/>']
        lines += ['<configurations><conf name="default"/></configurations>', "<dependencies>"]
        return "\n".join([*lines, *map(str, self.dependencies), "</dependencies>", "</ivy-module>", ""])

    def check(self, directory: Path) -> None:
        pairs = (line.split() for line in self.sums.read_text().splitlines())
        expected = {name: digest for digest, name in pairs}
        found = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.iterdir()}
        if found != expected:
            wrong = sorted(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
            raise RuntimeError(
                f"{directory} does not match {self.sums.name} ({', '.join(wrong)}): remove it to fetch it again"
            )
