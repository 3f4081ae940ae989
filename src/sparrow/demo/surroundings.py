"""The plan of a demonstration, and its surroundings: output directory, work directory, broker, and
free names there.
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from msgspec import Struct

import sparrow.sync
import sparrow.testing
from sparrow.base.errors import Conflict, InvalidArgument, SparrowError
from sparrow.pipelines.sparklist import LIST

TABLE, CHART, REPORT = "table", "chart.png", "report.json"
"""Names in the output directory that are replaced by each run. Nothing else there is touched."""
_SAY_WHERE = "say by --out where the table and the chart shall go"

CONNECT_TIMEOUT_S = 2.0
"""Short, because a person waits at the terminal."""

Progress = Callable[[int, int], None]
"""Called with (done, total) to show progress."""


class DemoPlan(Struct, frozen=True, kw_only=True):
    """The options of `sparrow demo`."""

    repo: str | None = None
    """A git repository; None: that of the current directory, else the sample."""
    workers: int = 4
    keep: bool = False
    """Keep the broker's data and the stages' files."""
    broker: str | None = None
    """URL of a running broker; None: one is started."""
    cluster: bool = False
    """Start two brokers of a cluster, and kill the one that owns the data."""
    objects: str | None = None
    """Object store of the cluster; None: a directory."""
    out_dir: str = "sparrow-demo"
    """Directory of the table, the chart and report.json."""


class Context(Struct, frozen=True, kw_only=True):
    """The context of the stages."""

    url: str
    """URL of the broker; it may have a secret: do not print it, nor show it in a process's
    arguments.
    """
    topic: str
    """The topic with the input, and the queue of that name; "commits", or with a suffix where that
    existed.
    """
    total: int
    """Number of messages."""
    workers: int
    work_dir: str
    """Directory for files of the stages; removed at the end unless `--keep`."""
    out_dir: str
    """Directory of the table and the chart, which stays."""
    fail_over: Callable[[], float] | None = None
    """Kill the broker that serves, and return the seconds until another does; None: there is no
    other.
    """

    @property
    def handled_topic(self) -> str:
        """Return the topic of the lines that the workers write."""
        return f"{self.topic}.handled"


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
            # A repository that it is created in does not see it.
            with open(os.path.join(path, ".gitignore"), "w", encoding="ascii") as file:
                file.write("*\n")
        clear(os.path.join(path, TABLE))
        for name in (CHART, REPORT):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(path, name))
    except OSError as error:
        raise InvalidArgument(
            f"{path!r} cannot be written to: {error.strerror or error}; {_SAY_WHERE}"
        ) from error
    return os.path.abspath(path)


def clear(table: str) -> None:
    """Remove the table of an earlier run; nothing else.

    Raises:
        Conflict: there is something that is no such table.
    """
    if not os.path.lexists(table):
        return
    is_directory = os.path.isdir(table) and not os.path.islink(table)
    if not is_directory or (os.listdir(table) and not os.path.isdir(f"{table}/{LIST}")):
        raise Conflict(
            f"{table} is in the way, and no table of a demonstration; move it away, or say another "
            "place by --out"
        )
    shutil.rmtree(table)


def last_lines(path: str) -> list[str]:
    """Return the lines at the end of a log that are not empty, of 4000 bytes at most."""
    with open(path, "rb") as file:
        file.seek(max(0, os.path.getsize(path) - 4000))
        return [line for line in file.read().decode(errors="replace").splitlines() if line.strip()]


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
    names = (wanted if number == 1 else f"{wanted}-{number}" for number in itertools.count(1))
    return next(name for name in names if not any(f"{each}.".startswith(f"{name}.") for each in taken))
