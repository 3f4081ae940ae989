"""The version of Sparrow."""

from __future__ import annotations

import functools


@functools.cache
def version() -> str:
    """Return the installed distribution's version; read late, as the look-up costs milliseconds."""
    from importlib.metadata import PackageNotFoundError
    from importlib.metadata import version as installed

    try:
        return installed("sparrow-broker")
    except PackageNotFoundError:
        return "0+source"
