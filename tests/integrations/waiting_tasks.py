"""A task that runs until a test ends it."""

from __future__ import annotations

import logging
import time
from pathlib import Path

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task

LIMIT_S = 60


@task(queue_name="emails")
def wait(directory: str, name: str) -> str:
    """Run from the file NAME.began to the file NAME.end."""
    logging.basicConfig(level=logging.INFO)  # the test reads when the worker stops
    Path(directory, f"{name}.began").touch()
    deadline = time.monotonic() + LIMIT_S
    while not Path(directory, f"{name}.end").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return name
