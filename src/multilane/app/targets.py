"""Finds an application by `module:name`, as the command line and the executors of a cluster do; and the way back.

Thread: any.

The module is imported as Python would import it from the current directory. The name may be a path of attributes, and
may lead to a function without parameters that makes the application.
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
    "workers have to import the application. Move the app and its listeners out of the running script or notebook, "
    "into a module of their own"
)


def find_app(target: str) -> App:
    from multilane.app.app import App

    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise TargetNotFound(f"{target!r} is not MODULE:APP, as in shop.consumers:app")
    if module_name in _MAIN:
        raise TargetNotFound(f"{target!r} is the script that runs here: {_NOT_MAIN}")
    if "" not in sys.path:
        sys.path.insert(0, "")
    os.environ.setdefault(MEMBER_VARIABLE, "0")  # its module may ask for it
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # something that the module imports
        raise TargetNotFound(f"there is no module {module_name!r} here or in this Python") from None
    for name in path.split("."):
        found = getattr(found, name, None)
    if callable(found) and not isinstance(found, type):
        found = found()
    if not isinstance(found, App):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise TargetNotFound(f"{target!r} leads to {what}, not to a multilane.App")
    _check_listeners(found)
    return found


def _check_listeners(app: App) -> None:
    """Whoever imports the app elsewhere would not have them."""
    for function in map(_undressed, app.functions):
        if function.__module__ in _MAIN:
            name = getattr(function, "__qualname__", type(function).__qualname__)
            raise TargetNotFound(f"the listener {name} is in the script that runs here: {_NOT_MAIN}")


def _undressed(function: Any) -> Any:
    """A partial says that its home is `functools`."""
    while isinstance(function, partial):
        function = function.func
    return function


def target_of(app: App) -> str:
    """Where others find this application: a module that is loaded here and has it under some name. Best one that also
    has a function of the application's: that is where it was made, and not just used."""
    _check_listeners(app)
    main = sys.modules.get("__main__")  # which multiprocessing also calls __mp_main__
    homes = [
        (module_name, name)
        for module_name, module in list(sys.modules.items())
        if module is not main and module_name not in _MAIN and _is_imported(module)
        for name, value in list(vars(module).items())
        if value is app
    ]
    if not homes:
        raise TargetNotFound(f'no module here has the application: {_NOT_MAIN}, or say target="module:name"')
    own = {_undressed(function).__module__ for function in app.functions}
    module_name, name = min(homes, key=lambda home: home[0] not in own)
    return f"{module_name}:{name}"


def _is_imported(module: object) -> bool:
    """Others can import it too: what `exec` and `runpy` fill has no spec, like a script."""
    return isinstance(module, ModuleType) and getattr(module, "__spec__", None) is not None
