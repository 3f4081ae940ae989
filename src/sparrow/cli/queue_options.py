"""Arguments and options that the commands of `sparrow queue` share."""

from __future__ import annotations

from typing import Annotated

import typer

Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue's name.", show_default=False)]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]
Subscriber = Annotated[
    str,
    typer.Option("--subscriber", metavar="NAME", help='As this subscriber of an "all of" queue.'),
]
