"""The command `sparrow`: a thin layer above the commands, so that `sparrow serve` starts without
Typer and Rich.

`main` is the entry point of the distribution. The thin install lacks the libraries of the commands;
then every command but `version` says in one line how to get them.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

MISSING = (
    "sparrow: the command line needs more packages; install them with: pip install 'sparrow-broker[server]'"
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (see `sparrow.cli.exits`)."""
    from sparrow.cli.exits import run_reporting

    open_missing_streams()
    arguments = list(sys.argv[1:] if argv is None else argv)
    return run_reporting(lambda: _dispatch(arguments))


def open_missing_streams() -> None:
    """Open the null device for those of stdin, stdout and stderr that are closed (`>&-`).

    Otherwise the next file or socket would get their number, and what is printed would go there.
    """
    for descriptor, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != descriptor:
                os.dup2(opened, descriptor)
                os.close(opened)
            setattr(sys, name, os.fdopen(descriptor, "w" if descriptor else "r", closefd=False))


def _dispatch(arguments: list[str]) -> int:
    try:
        return _run(arguments)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "sparrow":
            raise
        print(MISSING, file=sys.stderr)
        return 1


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["serve"]:
        from sparrow.cli.serve import serve

        return serve(arguments[1:])
    if arguments in (["version"], ["--version"]):
        from sparrow.cli.version import print_version

        return print_version()
    if arguments[:1] == ["worker"] and not {"-h", "--help"} & set(arguments):
        return _run_worker(arguments)
    from sparrow.cli.app import run

    return run(arguments)


def _run_worker(arguments: list[str]) -> int:
    from sparrow.tasks.supervisor import early

    early.begin()
    try:
        from sparrow.cli.app import run

        return run(arguments)
    finally:
        early.drop()
