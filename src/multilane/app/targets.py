"""Finds an application by `module:name`, for the command line and for Spark executors, and the name of an application.

Thread: any.

Imports the module as Python would from the current directory. The name may be a path of attributes, and may refer to a
function without parameters that creates the application.
"""

from __future__ import annotations

import importlib
import os
import sys
from functools import partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from multilane.config.app.loading import MEMBER_VARIABLE
from multilane.errors import TargetNotFound

if TYPE_CHECKING:
    from multilane.app.app import App

_MAIN: Final = frozenset({"__main__", "__mp_main__"})  # multiprocessing's name for the same module
_NOT_MAIN: Final = (
    "workers must be able to import the application. Move the app and its listeners out of the running script or "
    "notebook, into a module of their own"
)


def find_app(target: str) -> App:
    from multilane.app.app import App

    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise TargetNotFound(f"{target!r} is not MODULE:APP, for example shop.consumers:app")
    if module_name in _MAIN:
        raise TargetNotFound(f"{target!r} is the running script: {_NOT_MAIN}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    os.environ.setdefault(MEMBER_VARIABLE, "0")  # the module may read it
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # an import inside the module
        raise TargetNotFound(f"there is no module {module_name!r} in the current directory or in this Python") from None
    for name in path.split("."):
        found = getattr(found, name, None)
    if callable(found) and not isinstance(found, type):
        found = found()
    if not isinstance(found, App):
        problem = "does not exist" if found is None else f"is of type {type(found).__name__}"
        raise TargetNotFound(f"{target!r} {problem}: it must be a multilane.App")
    _check_listeners(found)
    return found


def _check_listeners(app: App) -> None:
    """Listeners in `__main__` would be missing where a worker imports the app."""
    for function in map(_unwrapped, app.functions):
        if function.__module__ in _MAIN:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            raise TargetNotFound(f"the listener {name} is in the running script: {_NOT_MAIN}")


def _unwrapped(function: Any) -> Any:
    """The function itself: the module of a partial is `functools`."""
    while isinstance(function, partial):
        function = function.func
    return function


def target_of(app: App) -> str:
    """The `module:name` of this application: a loaded module that has it as an attribute. A module that also defines
    a listener comes first: it creates the application instead of importing it."""
    _check_listeners(app)
    main = sys.modules.get("__main__")  # which multiprocessing also calls __mp_main__
    found = [
        (module_name, name)
        for module_name, module in list(sys.modules.items())
        if module is not main and module_name not in _MAIN and _is_imported(module)
        for name, value in list(vars(module).items())
        if value is app
    ]
    if not found:
        raise TargetNotFound(f'no loaded module has the application: {_NOT_MAIN}, or give target="module:name"')
    own = {_unwrapped(function).__module__ for function in app.functions}
    module_name, name = min(found, key=lambda candidate: candidate[0] not in own)
    return f"{module_name}:{name}"


def _is_imported(module: object) -> bool:
    """Whether others can import it too: modules made by `exec` or `runpy` have no spec, like a script."""
    return isinstance(module, ModuleType) and getattr(module, "__spec__", None) is not None
