"""The command `sparrow version`."""

from __future__ import annotations

import platform

from sparrow.base.version import VERSION


def print_version() -> int:
    """Print the versions of Sparrow and of Python."""
    print(f"sparrow {VERSION} (Python {platform.python_version()}, {platform.system()})")
    return 0
