"""Where a demonstration happens: the directory with what it makes, the one that is removed, the broker, and names that are free there."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import InvalidArgument, SparrowError
from sparrow.demo.copies import clear

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.demo.plan import Plan

TABLE, FILES = "table", ("chart.png", "report.json")
"""What is made in the directory of the outputs, and replaced when it is made again. Nothing else there is touched."""

_SAY_WHERE = "say by --out where the table and the chart shall go"

CONNECT_TIMEOUT_S = 2.0
"""Somebody waits at the terminal."""


def output_directory(path: str) -> str:
    """The directory, made, without what an earlier demonstration left there; its absolute path.

    Raises:
        InvalidArgument: it is none, or cannot be written to.
        Conflict: in it there is a "table" that is somebody else's.
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
    """So that it does not show up among the changes of the repository that it is made in."""
    with open(os.path.join(path, ".gitignore"), "w", encoding="ascii") as file:
        file.write("*\n")


@contextmanager
def work_directory(*, keep: bool) -> Iterator[str]:
    """A directory for the time of the demonstration; for longer if it is to be kept, or has the logs of a failure."""
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
def broker(plan: Plan, work_dir: str) -> Iterator[str]:
    """The URL of a broker: the one that was named, or one that is started, with its data below the work directory.

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
            # Ctrl-C at the terminal reaches the broker, too, and it may be on its way out: no goodbye then.
            running.kill()
            raise


def free_name(url: str, kind: str) -> str:
    """A name for the topic with the input under which there is no topic and no queue: the kind itself, or with a number."""
    with sparrow.sync.connect(url, client_name="demo") as client:
        topics = {each.name for each in client.admin.list_topics(f"{kind}*")}
        taken = topics | {each.name for each in client.admin.list_queues(f"{kind}*")}
    number = 1
    while True:
        name = kind if number == 1 else f"{kind}-{number}"
        if not any(each == name or each.startswith(f"{name}.") for each in taken):
            return name
        number += 1
