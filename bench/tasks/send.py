"""The sender of a task system: `python -m bench.tasks.send MODULE WHAT COUNT` does what it is asked
for, and prints one JSON object.

A program of its own, because systems name tasks after the module that declares them, which must be
the same here and in the worker.
"""

from __future__ import annotations

import asyncio
import importlib
import inspect
import json
import sys


def main() -> None:
    """Run what the command line asks for."""
    module, what, count = sys.argv[1:]
    found = importlib.import_module(f"bench.tasks.{module}").run(what, int(count))
    if inspect.iscoroutine(found):
        found = asyncio.run(found)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
