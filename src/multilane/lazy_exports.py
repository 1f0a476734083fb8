"""Public names of a package that load their module on first use.

Thread: any (import locks are Python's).

`import multilane` must import nothing heavy, and still offer every public name. Each package with public names calls
`lazy_exports` with the modules that define them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module


def lazy_exports(package: str, homes: Mapping[str, str]) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` for a package. `homes` maps each name to the module that defines it."""

    def load(name: str) -> object:
        home = homes.get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(home), name)

    return load, lambda: sorted(homes)
