"""`sparrow doctor [DIR]`: checks a data directory offline and says what a start would repair. Changes nothing."""

from __future__ import annotations

import fcntl
import os
from typing import TYPE_CHECKING, Annotated

import typer

from sparrow.base.errors import DirectoryInUse, DirectoryUnreadable, SparrowError
from sparrow.base.units import format_size
from sparrow.cli.exits import BAD_DATA, FAILED, OK
from sparrow.cli.segmentfile import read_batches

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_DIRECTORY = "./sparrow-data"
_LOST_TOPICS = (
    "it names no topic, but there are {logs} logs, which a start would take for those of deleted topics and remove;"
    " do not start a broker here, put back meta.db and meta.db-wal first"
)


def doctor(
    directory: Annotated[
        str, typer.Argument(metavar="[DIR]", help="The data directory.")
    ] = DEFAULT_DIRECTORY,
    *,
    check_all: Annotated[
        bool, typer.Option("--all", help="Check every batch of every log, not only what a start would check.")
    ] = False,
) -> int:
    """Check a data directory that no broker uses; say what would be repaired; change nothing."""
    _check_usable(directory)
    print(f"{os.path.abspath(directory)}: {_room(directory)}")
    repairs = _check_logs(directory)
    damages = _check_meta(directory, _count_logs(directory))
    if check_all:
        damages += _check_batches(directory)
    print(_verdict(repairs, damages))
    return BAD_DATA if damages else FAILED if repairs else OK


def _check_usable(directory: str) -> None:
    """Raise unless it is a data directory of this format that nobody has open."""
    from sparrow.storage.directory import check_version

    if not os.path.isdir(directory):
        raise DirectoryUnreadable(
            f"there is no directory {directory}; name the one that `sparrow serve --data-dir` used"
        )
    if (pid := _owner(directory)) is not None:
        raise DirectoryInUse(f"{directory} is in use by the broker with pid {pid}; stop it, then look again")
    try:
        with open(f"{directory}/format", "rb") as file:
            check_version(file.name, file.read())
    except OSError as error:
        raise DirectoryUnreadable(
            f"{directory} is no data directory: its file `format` cannot be read ({error.strerror}); name the one that"
            " `sparrow serve --data-dir` used"
        ) from None


def _owner(directory: str) -> str | None:
    """The pid in the lock file, if a broker holds the lock."""
    try:
        descriptor = os.open(f"{directory}/.lock", os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 32).decode(errors="replace").strip() or "unknown"
    else:
        return None
    finally:
        os.close(descriptor)


def _room(directory: str) -> str:
    found = os.statvfs(directory)
    return f"{format_size(found.f_bavail * found.f_frsize)} free"


def _check_logs(directory: str) -> int:
    from sparrow.storage.filesystem import LocalFileSystem
    from sparrow.storage.recovery import inspect

    clean = os.path.exists(f"{directory}/.clean")
    print("the last broker was stopped cleanly" if clean else "the last broker was not stopped cleanly")
    repairs = inspect(LocalFileSystem(), directory)
    for repair in repairs:
        print(f"would repair: {repair}")
    return len(repairs)


def _count_logs(directory: str) -> int:
    from sparrow.storage.names import maybe_log_name

    logs = f"{directory}/logs"
    return sum(maybe_log_name(name) is not None for name in os.listdir(logs)) if os.path.isdir(logs) else 0


def _check_meta(directory: str, logs: int) -> int:
    from sparrow.meta.inspection import inspect

    path = f"{directory}/meta.db"
    if not os.path.exists(path):
        print(f"damaged: {path} is missing; put back a backup of the data directory")
        return 1
    try:
        counts, problems = inspect(path)
    except SparrowError as error:
        print(f"damaged: {error.text}")
        return 1
    print(
        "meta store: " + (", ".join(f"{number} of kind {kind}" for kind, number in counts.items()) or "empty")
    )
    if logs and not counts.get("topic"):
        problems = [*problems, _LOST_TOPICS.format(logs=logs)]
    for problem in problems:
        print(f"damaged: {path}: {problem}")
    return len(problems)


def _check_batches(directory: str) -> int:
    batches = size_bytes = damages = 0
    for path in _segments(directory):
        for found in read_batches(path):
            batches += 1
            size_bytes += len(found.data)
            if found.problem:
                damages += 1
                print(f"damaged: {path}: position {found.position}: {found.problem}")
    print(f"checked {batches} batches, {format_size(size_bytes)}")
    return damages


def _segments(directory: str) -> Iterator[str]:
    for parent, _, names in sorted(os.walk(f"{directory}/logs")):
        yield from (os.path.join(parent, name) for name in sorted(names) if name.endswith(".log"))


def _verdict(repairs: int, damages: int) -> str:
    if damages:
        return f"{damages} damaged: this cannot be repaired from what is here; put back a backup or live without it"
    if repairs:
        return f"{repairs} to repair: the next `sparrow serve` does that by itself; what it cuts off was never acknowledged with acks=all, unless the disk has damaged it since"
    return "all is well"
