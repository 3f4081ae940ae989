"""Surroundings of a demonstration: its output directory, its work directory, its broker, and free
names there.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.demo.pipeline_copy import clear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.demo.plan import DemoPlan

TABLE, FILES = "table", ("chart.png", "report.json")
"""Files in the output directory that are replaced by each run. Nothing else there is touched."""

_SAY_WHERE = "say by --out where the table and the chart shall go"

CONNECT_TIMEOUT_S = 2.0
"""Short, because a person waits at the terminal."""


def output_directory(path: str) -> str:
    """Create the output directory, without the output of an earlier demonstration; return its
    absolute path.

    Raises:
        InvalidArgument: it is no directory, or cannot be written to.
        Conflict: it has a "table" that is no demonstration's.
    """
    if os.path.lexists(path) and not os.path.isdir(path):
        raise InvalidArgument(f"{path} is not a directory; {_SAY_WHERE}")
    try:
        os.makedirs(path, exist_ok=True)
        if not os.listdir(path):
            _hide_from_git(path)
        clear(os.path.join(path, TABLE))
        for name in FILES:
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(path, name))
    except OSError as error:
        raise InvalidArgument(
            f"{path!r} cannot be written to: {error.strerror or error}; {_SAY_WHERE}"
        ) from error
    return os.path.abspath(path)


def _hide_from_git(path: str) -> None:
    """Hide the directory from the changes of a repository that it is created in."""
    with open(os.path.join(path, ".gitignore"), "w", encoding="ascii") as file:
        file.write("*\n")


@contextmanager
def work_directory(*, keep: bool) -> Iterator[str]:
    """Yield a directory for the duration of the demonstration, and longer if it is to be kept, or
    has the logs of a failure.
    """
    path = tempfile.mkdtemp(prefix="sparrow-demo-")
    try:
        yield path
    except SparrowError as error:
        if not os.listdir(path):
            os.rmdir(path)
            raise
        raise type(error)(f"{error.text}; logs and data of the attempt are kept in {path}") from error
    except BaseException:
        shutil.rmtree(path, ignore_errors=True)
        raise
    if not keep:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def broker(plan: DemoPlan, work_dir: str) -> Iterator[str]:
    """Yield the URL of a broker: the one that was named, or one that is started, with its data
    below the work directory.

    Raises:
        ConnectionLost: the one that was named cannot be reached.
    """
    if plan.broker is not None:
        with sparrow.sync.connect(plan.broker, client_name="demo", connect_timeout_s=CONNECT_TIMEOUT_S):
            pass
        yield plan.broker
        return
    with sparrow.testing.broker(process=True, data_dir=os.path.join(work_dir, "broker")) as running:
        try:
            yield running.url
        except BaseException:
            # Ctrl-C at the terminal also reaches the broker, which may be on its way out: no
            # goodbye then.
            running.kill()
            raise


def free_name(url: str, wanted: str) -> str:
    """Return the wanted name, with a number if there are a topic or a queue of that name."""
    with sparrow.sync.connect(url, client_name="demo") as client:
        topics = {each.name for each in client.admin.list_topics(f"{wanted}*")}
        taken = topics | {each.name for each in client.admin.list_queues(f"{wanted}*")}
    number = 1
    while True:
        name = wanted if number == 1 else f"{wanted}-{number}"
        if not any(each == name or each.startswith(f"{name}.") for each in taken):
            return name
        number += 1
