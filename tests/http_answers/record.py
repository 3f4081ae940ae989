"""Record the responses again: `.venv/bin/python -m tests.http_answers.record [SCENARIO …]`.

Look at the difference before you commit it: each line of it is a change that clients see.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from sparrow.server.run import loop_factory
from tests.http_answers.recording import recorded, write
from tests.http_answers.scenarios import SCENARIOS


async def record(names: list[str]) -> None:
    for name in names:
        with tempfile.TemporaryDirectory() as directory:
            write(name, await recorded(SCENARIOS[name], Path(directory)))


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(record(sys.argv[1:] or list(SCENARIOS)))
