"""`multilane run MODULE:APP`: runs an application until it is told to end.

Thread: application.

The module is imported as Python would import it from the current directory. Exit codes: 0 ended in order, 1 something
failed (the text says what), 2 the command was used wrongly.
"""

from __future__ import annotations

import importlib
import logging
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from multilane.runtime.app import App


class Engine(StrEnum):
    """What runs the lanes."""

    process = "process"


class Level(StrEnum):
    """How much is logged."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def run(
    target: Annotated[str, typer.Argument(metavar="MODULE:APP", help="Where the App is, as in shop.consumers:app.")],
    engine: Annotated[Engine, typer.Option(help="What runs the lanes.")] = Engine.process,
    log_level: Annotated[Level, typer.Option(help="How much is logged, to the error stream.")] = Level.info,
) -> None:
    """Run an app's consumers until SIGTERM or Ctrl-C; then settle what is in work, commit and leave the groups."""
    del engine  # there is one so far
    logging.basicConfig(level=log_level.value.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    found_app(target).run()


def found_app(target: str) -> App:
    """The app that `module:name` leads to; the name may be a path of attributes."""
    from multilane.runtime.app import App

    module_name, _, path = target.partition(":")
    if not module_name or not path:
        raise typer.BadParameter(f"{target!r} is not MODULE:APP, as in shop.consumers:app")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found: object = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # something that the module imports
        raise typer.BadParameter(f"there is no module {module_name!r} here or in this Python") from None
    for name in path.split("."):
        found = getattr(found, name, None)
    if not isinstance(found, App):
        what = "nothing" if found is None else f"a {type(found).__name__}"
        raise typer.BadParameter(f"{target!r} leads to {what}, not to a multilane.App")
    return found
