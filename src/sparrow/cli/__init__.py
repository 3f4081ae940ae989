"""The command `sparrow`: a thin door in front of the commands, so that `sparrow serve` starts without Typer and Rich.

`main` is the entry point of the distribution. The thin install has no Typer; then every command but `version` says in one
line how to get it.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MISSING = (
    "sparrow: the command line needs more packages; install them with: pip install 'sparrow-broker[server]'"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code (see `sparrow.cli.exits`)."""
    from sparrow.cli.exits import run_reporting

    arguments = list(sys.argv[1:] if argv is None else argv)
    return run_reporting(lambda: _dispatch(arguments))


def _dispatch(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"]:
        from sparrow.cli.serve import serve

        return serve(arguments[1:])
    if arguments in (["version"], ["--version"]):
        return print_version()
    try:
        import typer as _typer  # noqa: F401 - only whether it is there
    except ImportError:
        print(MISSING, file=sys.stderr)
        return 1
    from sparrow.cli.app import run

    return run(arguments)


def print_version() -> int:
    """Say which Sparrow and which Python this is."""
    import platform

    from sparrow.base.version import version

    print(f"sparrow {version()} (Python {platform.python_version()}, {platform.system()})")
    return 0
