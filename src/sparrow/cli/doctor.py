"""`sparrow doctor [DIR]`: checks a data directory offline and says what a start would repair.
Changes nothing unless asked to accept what is lost.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from typing import TYPE_CHECKING, Annotated

import typer

from sparrow.base.errors import DirectoryInUse, DirectoryUnreadable, NewerFormat, SparrowError
from sparrow.base.units import format_size
from sparrow.cli.exits import BAD_DATA, FAILED, OK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.storage.directory import DataDirectory
    from sparrow.storage.filesystem import FileSystem
    from sparrow.storage.local_journal import Found
    from sparrow.storage.recovery import Recovered
    from sparrow.storage.scrub import SegmentCheck

_CHECKED_AT_ONCE = 64 << 20
DEFAULT_DIRECTORY = "./sparrow-data"
_LOST_TOPICS = (
    "it names no topic, but there are {logs} logs, which a start would take for those of deleted "
    "topics and remove;"
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
    accept_loss: Annotated[
        bool,
        typer.Option(
            "--accept-loss",
            help="Let partitions that lack records go on without them; the offsets become gaps and "
            "are never given out again. Let a damaged journal of queues go on with what can be read."
            " With --all also places where no batch begins any more.",
        ),
    ] = False,
) -> int:
    """Check a data directory that no broker uses; report what a start would repair and what is
    lost.

    Nothing is changed, except with --accept-loss.
    """
    check_usable(directory)
    print(f"{os.path.abspath(directory)}: {_room(directory)}")
    repairs, lost = _check_logs(directory)
    if accept_loss and (lost or check_all):
        _replay_into_logs(directory)
        _accept_loss(directory, all_headers=check_all)
        repairs, lost = _check_logs(directory)
    # without a readable meta store nobody knows which entries of the journal are needed
    damages = _check_meta(directory, _count_logs(directory)) or _check_journal(
        directory, accept_loss=accept_loss
    )
    damages += lost
    if check_all:
        damages += _check_batches(directory)
    print(_verdict(repairs, damages))
    return BAD_DATA if damages else FAILED if repairs else OK


def check_usable(directory: str) -> None:
    """Raise unless it is a data directory of this format that no broker has open."""
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
            f"{directory} is no data directory: its file `format` cannot be read "
            f"({error.strerror}); name the one that"
            " `sparrow serve --data-dir` used"
        ) from None


def _owner(directory: str) -> str | None:
    """Return the pid in the lock file, if a broker holds the lock."""
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


def _check_logs(directory: str) -> tuple[int, int]:
    """Print what a start would repair, and what is lost; return the number of each."""
    clean = os.path.exists(f"{directory}/.clean")
    print("the last broker was stopped cleanly" if clean else "the last broker was not stopped cleanly")
    found = _examine(directory)
    repairs = [repair for each in found if not each.damages for repair in each.repairs]
    damages = [damage for each in found for damage in each.damages + each.unreadable]
    for repair in repairs:
        print(f"would repair: {repair}")
    for damage in damages:
        print(f"damaged: {damage.sentence}")
    return len(repairs), len(damages)


def _examine(directory: str, *, all_headers: bool = False) -> list[Recovered]:
    from sparrow.storage.filesystem import LocalFileSystem
    from sparrow.storage.recovery import examine_all

    return examine_all(LocalFileSystem(), os.path.abspath(directory), all_headers=all_headers)


def _accept_loss(directory: str, *, all_headers: bool) -> None:
    """Let all damaged logs continue without what they lost.

    Args:
        all_headers: also without what is behind unreadable headers that no start needs.
    """
    from sparrow.storage.acceptance import accept
    from sparrow.storage.directory import DataDirectory
    from sparrow.storage.filesystem import LocalFileSystem
    from sparrow.storage.names import LOGS_DIRECTORY, POINTS_FILE
    from sparrow.storage.recovery_points import RecoveryPoints

    fs = LocalFileSystem()
    owned = DataDirectory(fs, directory)  # no broker may start meanwhile
    try:
        points = RecoveryPoints(fs, f"{owned.path}/{LOGS_DIRECTORY}/{POINTS_FILE}")
        while damaged := [
            each for each in _examine(directory, all_headers=all_headers) if _is_acceptable(each)
        ]:
            for (
                found
                # a log that lacks files is examined again: its headers may also be unreadable
            ) in damaged:
                for gap in accept(fs, found, points):
                    print(
                        f"accepted: offsets {gap.first} to {gap.end - 1} of {found.log} are a gap from now on"
                    )
        points.close()
    finally:
        owned.release(clean=owned.was_clean)


def _is_acceptable(found: Recovered) -> bool:
    return bool(found.damages or found.unreadable) and not found.is_unreachable


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


def _check_journal(directory: str, *, accept_loss: bool) -> int:
    """Print what a start would replay of the journal, or why it would refuse; return the number of
    faults.

    Raises:
        NewerFormat: a later Sparrow wrote it.
    """
    from sparrow.storage.local_journal import loss_of

    path = _journal_path(directory)
    try:
        found = _read_journal(directory)
    except NewerFormat:  # nothing is lost, and a backup would not help
        raise
    except (OSError, SparrowError) as error:
        print(f"damaged: the journal in {path}: {getattr(error, 'text', error)}")
        return 1
    if found.records:
        print(f"journal: {len(found.records)} records to replay")
    if not found.loss:
        return 0
    if accept_loss:
        asyncio.run(_accept_journal(directory, found.records))
        print(f"accepted: the journal goes on without what it lost ({found.loss})")
        return 0
    print(f"damaged: {loss_of(path, found.loss).text}")
    return 1


def journal_mark(directory: str) -> bytes | None:
    """Return the mark of the journal's last checkpoint in the meta store, None without one.

    Raises:
        OSError
        DirectoryUnreadable: the meta store is damaged.
        NewerFormat: a later Sparrow wrote it.
    """
    from sparrow.broker.queues.persistence.state_store import KEY, KIND, decode_mark
    from sparrow.meta.inspection import read_entry

    path = f"{directory}/meta.db"
    entry = read_entry(path, KIND, KEY) if os.path.exists(path) else None
    return None if entry is None else decode_mark(entry)


def _journal_path(directory: str) -> str:
    from sparrow.storage.names import JOURNAL_DIRECTORY

    return f"{os.path.abspath(directory)}/{JOURNAL_DIRECTORY}"


def _read_journal(directory: str) -> Found:
    from sparrow.storage.filesystem import LocalFileSystem
    from sparrow.storage.local_journal import read_journal

    return read_journal(LocalFileSystem(), _journal_path(directory), journal_mark(directory))


def _replay_into_logs(directory: str) -> None:
    """Write what the journal has of the logs into them, as a start does, before anything is cut off
    for good. A journal that cannot be read is reported later.

    Raises:
        NewerFormat: a later Sparrow wrote it, and can replay it.
    """
    from sparrow.storage.directory import DataDirectory
    from sparrow.storage.filesystem import LocalFileSystem

    try:
        records = _read_journal(directory).records
    except NewerFormat:
        raise
    except (OSError, SparrowError):
        return
    fs = LocalFileSystem()
    owned = DataDirectory(fs, directory)  # no broker may start meanwhile
    try:
        _replay(fs, owned, records)
    finally:
        owned.release(clean=owned.was_clean)


def _replay(fs: FileSystem, owned: DataDirectory, records: list[memoryview]) -> None:
    from sparrow.storage.names import POINTS_FILE
    from sparrow.storage.recovery_points import read_points
    from sparrow.storage.redo import is_redo, replay

    points, _ = read_points(fs, f"{owned.logs}/{POINTS_FILE}")
    replay(fs, owned.logs, points.get, filter(is_redo, records))


async def _accept_journal(directory: str, records: list[memoryview]) -> None:
    from sparrow.broker.queues.persistence.state_store import accept_loss
    from sparrow.meta.sqlite import SqliteMetaStore
    from sparrow.storage.directory import DataDirectory
    from sparrow.storage.filesystem import LocalFileSystem
    from sparrow.storage.redo import is_redo

    fs = LocalFileSystem()
    owned = DataDirectory(fs, directory)  # no broker may start meanwhile
    try:
        _replay(fs, owned, records)
        records = [each for each in records if not is_redo(each)]
        meta = SqliteMetaStore(f"{directory}/meta.db")
        try:
            await accept_loss(meta, records)
        finally:
            await meta.close()
    finally:
        owned.release(clean=owned.was_clean)


def _check_batches(directory: str) -> int:
    from sparrow.storage.filesystem import LocalFileSystem

    fs, examined = LocalFileSystem(), _examine(directory)
    known = {damage.sentence for each in examined for damage in each.unreadable}
    segments = size_bytes = damages = 0
    for check in _segments(fs, examined):
        segments += 1
        while not check.is_done:
            size_bytes += check.step(_CHECKED_AT_ONCE)
        new = [each for each in check.damages if each.sentence not in known]
        damages += len(new)
        for damage in new:
            print(f"damaged: {damage.sentence}")
    print(f"checked {segments} segments, {format_size(size_bytes)}")
    return damages


def _segments(fs: FileSystem, examined: list[Recovered]) -> Iterator[SegmentCheck]:
    """Return the segments of all logs that are whole, as far as a start would keep them."""
    from sparrow.storage.scrub import SegmentCheck

    for found in examined:
        for extent in [] if found.damages else found.extents():
            yield SegmentCheck(fs, found.log, extent)


def _verdict(repairs: int, damages: int) -> str:
    if damages:
        return (
            f"{damages} damaged: this cannot be repaired from what is here; put back a backup, or "
            "live without it"
            " (`sparrow doctor --accept-loss` lets closed partitions go on)"
        )
    if repairs:
        return (
            f"{repairs} to repair: the next `sparrow serve` does that by itself; what it cuts off was "
            "never acknowledged with acks=all, unless the disk has damaged it since"
        )
    return "all is well"
