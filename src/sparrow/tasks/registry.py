"""The apps of this process by name, for processes that run one's tasks."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Final

from sparrow.tasks.errors import TaskError

if TYPE_CHECKING:
    from sparrow.tasks.interface import App

_APPS: Final[weakref.WeakValueDictionary[str, App]] = weakref.WeakValueDictionary()


def register(app: App) -> None:
    """Make an app known; a later one of the same name replaces it (a module that was reloaded)."""
    _APPS[app.name] = app


def app_named(name: str) -> App:
    """Return the app of a name.

    Raises:
        TaskError: there is none.
    """
    app = _APPS.get(name)
    if app is None:
        raise TaskError(
            f"no app {name!r} was made while the modules of its tasks were imported; make it at the top of a "
            'module, not under `if __name__ == "__main__"`'
        )
    return app
