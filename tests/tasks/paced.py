"""An app with a rate, whose worker processes say when each call began."""

from __future__ import annotations

import os
import time
from pathlib import Path

import sparrow

app = sparrow.Tasks("paced")


@app.task(rate="20/s", queue="paced")
def step(path: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{os.getpid()} {time.monotonic()}\n")
