"""The question before a command deletes something."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from sparrow.cli.exits import say

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def confirmed(question: str, *, yes: bool) -> bool:
    """Return True if the command may act: by `yes`, or by a reply at the terminal. Elsewhere no one
    can reply, so return False and print how to say yes.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        say("nothing was done: there is nobody to ask; say --yes")
        return False
    return typer.confirm(question)
