"""The app that a command line names: `package.module:app`."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from typing import TYPE_CHECKING

from sparrow.tasks.errors import TaskError

if TYPE_CHECKING:
    from sparrow.tasks.app import Tasks


def split(target: str) -> tuple[str, str]:
    """Return module and name of "package.module:app"; the name is "app" if it is left out.

    Raises:
        TaskError: it has another form.
    """
    module, colon, name = target.partition(":")
    if module.endswith(".py") or "/" in module or not module or (colon and not name):
        raise TaskError(
            f"{target!r} names no app; write the module as Python imports it, a colon, and the app's name: "
            "package.module:app"
        )
    return module, name or "app"


def load(target: str) -> Tasks:
    """Import the module, from the working directory or the path, and return the app.

    Raises:
        TaskError: the module or the name does not exist, or is no app.
        Exception: what the module raises.
    """
    module_name, name = split(target)
    from sparrow.tasks.app import Tasks

    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not (module_name == error.name or module_name.startswith(f"{error.name}.")):
            raise  # a module that the app's module imports
        raise TaskError(
            f"there is no module {error.name!r} in {os.getcwd()} nor on Python's path; run the command where "
            f"`import {module_name}` works"
        ) from None
    found: object = module
    for part in name.split("."):
        found = getattr(found, part, None)
        if found is None:
            apps = [key for key, value in vars(module).items() if isinstance(value, Tasks)]
            hint = f"; it has {', '.join(apps)}" if apps else ""
            raise TaskError(f"the module {module_name!r} has no {name!r}{hint}")
    if not isinstance(found, Tasks):
        raise TaskError(f"{target} is {type(found).__name__}, it must be a sparrow.Tasks")
    return found
