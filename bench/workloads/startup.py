"""Start-up time, idle memory, and how soon a killed broker serves again: of Sparrow, and of the
peers in the same run.

A broker has started when it answers its client's first request, not when its port accepts. What it
takes in memory is the resident size of its process and of those that it has started, when it has
come to rest. After kill -9 it serves again when it says that everything is there which it had
acknowledged.
"""

from __future__ import annotations

import time
import traceback
from functools import partial
from typing import TYPE_CHECKING

from bench.peers.daemon import Daemon, NotInstalled, directory
from bench.quiet import until_idle
from bench.results import OURS, Measurement, Target
from bench.subjects import SUBJECTS, VALUE, Subject
from bench.together import together

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PATIENCE_S = 60.0
LOOK_S = 0.005
ACCEPTS = "serve: start to first connection"
ANSWERS = "start to first answer"
MEMORY = "idle memory"
SERVES = "kill -9, restart, right end served"


def fresh(runs: int, scale: float) -> list[Measurement]:  # noqa: ARG001
    """From exec on an empty directory to the first answer, and memory after that."""
    rows = {
        subject.broker: [
            _row(ANSWERS, "s", subject, says_how=False),
            _row(MEMORY, "MB", subject, says_how=False),
        ]
        for subject in SUBJECTS
    }
    accepts = Measurement(ACCEPTS, "s", Target(0.5, at_least=False))
    rows[OURS][1].target = Target(80, at_least=False)
    rows[OURS].insert(0, accepts)
    _rounds(SUBJECTS, rows, runs, _started)
    return [rows[OURS][0]] + [row for kind in (-2, -1) for row in (each[kind] for each in rows.values())]


def _started(subject: Subject, rows: list[Measurement]) -> None:
    with directory() as root, subject.prepared(root) as peer:
        began = time.perf_counter()
        peer.daemon.spawn()
        try:
            peer.daemon.until_accepting()
            accepted = time.perf_counter() - began
            _until(partial(subject.answer, peer.address), peer.daemon)
            answered = time.perf_counter() - began
            until_idle(peer.daemon.pid)
            figures = [accepted, answered, peer.daemon.memory_bytes() / 1e6]
        finally:
            peer.daemon.stop()
    for row, figure in zip(rows, figures[-len(rows) :], strict=True):
        row.runs.append(figure)


def recovery(runs: int, scale: float) -> list[Measurement]:
    """A log of 1 GB, and the peers with half of it, killed with kill -9: seconds until the right
    end is answered. A short run has Sparrow alone: some peers take half a minute.
    """
    count = round(500_000 * scale)
    rows = {subject.broker: [_row(SERVES, "s", subject)] for subject in SUBJECTS}
    asked = [subject for subject in SUBJECTS if scale >= 1 or subject.broker == OURS]
    for broker, (row,) in rows.items():
        row.note = _size(count) if broker in {subject.broker for subject in asked} else "full run only"
    _rounds(asked, rows, runs, partial(_recovered, count))
    return [_of_a_gigabyte(runs, scale), *(row for (row,) in rows.values())]


def _of_a_gigabyte(runs: int, scale: float) -> Measurement:
    """Sparrow's alone."""
    target = Target(2, at_least=False) if scale >= 1 else None
    row = Measurement("kill -9, restart, serve a 1 GB log", "s", target)
    count = round(1_000_000 * scale)
    row.note = _size(count)
    ours = [subject for subject in SUBJECTS if subject.broker == OURS]
    _rounds(ours, {OURS: [row]}, runs, partial(_recovered, count))
    return row


def _size(count: int) -> str:
    return f"{count * len(VALUE) / 1e9:.2f} GB in messages of 1 KB"


def _recovered(count: int, subject: Subject, rows: list[Measurement]) -> None:
    with directory() as root, subject.prepared(root) as peer:
        peer.daemon.spawn()
        try:
            peer.daemon.until_accepting()
            _until(partial(subject.answer, peer.address), peer.daemon)
            subject.make(peer.address)
            together(subject.fill(peer.address, count))
            peer.daemon.kill()
            began = time.perf_counter()
            peer.daemon.spawn()
            peer.daemon.until_accepting()
            _until(partial(_check_end, subject, peer.address, count + 1), peer.daemon)
            rows[0].runs.append(time.perf_counter() - began)
        finally:
            peer.daemon.stop()


class NotThere(Exception):
    """Not all messages that were acknowledged."""


def _check_end(subject: Subject, address: object, expected: int) -> None:
    found = subject.end(address)
    if found != expected:
        raise NotThere(
            f"{expected:,} messages were acknowledged; after kill -9 {subject.broker} has {found:,}"
        )


def _until(ask: Callable[[], object], daemon: Daemon) -> None:
    """Ask until it is answered.

    Raises:
        Exception: whatever came of the last attempt, when there was no answer for long.
        NotInstalled: there is nobody who could ask.
        RuntimeError: the server has ended.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            ask()
            return
        except NotInstalled:  # the client: waiting does not bring it
            raise
        except Exception:
            daemon.check()
            if time.monotonic() > deadline:
                raise
        time.sleep(LOOK_S)


def _rounds(
    subjects: Sequence[Subject],
    rows: dict[str, list[Measurement]],
    runs: int,
    measure: Callable[[Subject, list[Measurement]], None],
) -> None:
    """One after the other, round after round; who fails or is missing takes part no longer, and its
    rows say why.
    """
    left = list(subjects)
    for _ in range(runs):
        for subject in list(left):
            try:
                measure(subject, rows[subject.broker])
            except NotInstalled as error:
                left.remove(subject)
                for row in rows[subject.broker]:
                    row.note = str(error)
            except Exception as error:  # noqa: BLE001 - the others are measured
                traceback.print_exc()
                left.remove(subject)
                for row in rows[subject.broker]:
                    row.runs.clear()
                    row.failed = True
                    row.note = f"failed: {(str(error).strip() or type(error).__name__).splitlines()[0]}"


def _row(figure: str, unit: str, subject: Subject, *, says_how: bool = True) -> Measurement:
    how = subject.client if says_how else ""
    return Measurement(
        f"{figure}: {subject.broker}" + (f", {how}" if how else ""),
        unit,
        durability=subject.durability if says_how else "",
        figure=figure,
        broker=subject.broker,
        client=how,
        strength=subject.strength if says_how else "",
    )
