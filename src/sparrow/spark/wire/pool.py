"""Sessions that a process keeps for later tasks: connecting costs a task of a short micro-batch
more than its read.

A worker runs one task after the other, so a few sessions are enough. A session that broke, or that
still has a request under way, is not kept. A forked process begins with none: two processes on one
socket would read each other's responses.
"""

from __future__ import annotations

import atexit
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sparrow.base.forks import watch
from sparrow.spark.wire.session import Session, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.spark.wire.target import Target

KEPT_PER_TARGET: Final = 4
KEPT_TARGETS: Final = 8


class Pool:
    """The sessions of one process. Thread-safe; a session belongs to one borrower at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[Target, list[Session]] = {}
        watch(self)

    def forked(self, parent: int) -> None:  # noqa: ARG002 - the protocol's
        """Begin without sessions in a child process. Another thread may have had the lock."""
        self._lock = threading.Lock()
        kept, self._kept = self._kept, {}
        for sessions in kept.values():
            for session in sessions:
                session.drop()

    @contextmanager
    def borrowed(self, target: Target, *, patience_s: float = 0.0) -> Iterator[Session]:
        """Lend a session to a block of code, with this patience (`Session.patience_s`)."""
        session = self._take(target) or connect(target, patience_s=patience_s)
        session.patience_s = patience_s
        try:
            yield session
        except (KeyboardInterrupt, SystemExit):  # it may have come in the middle of anything
            session.drop()
            raise
        finally:
            self._give_back(target, session)

    def close(self) -> None:
        """Close all kept sessions."""
        with self._lock:
            kept, self._kept = self._kept, {}
        for sessions in kept.values():
            for session in sessions:
                session.close()

    def _take(self, target: Target) -> Session | None:
        with self._lock:
            sessions = self._kept.get(target)
            return sessions.pop() if sessions else None

    def _give_back(self, target: Target, session: Session) -> None:
        if not session.is_clean:
            session.close()
            return
        with self._lock:
            sessions = self._kept.pop(target, [])
            self._kept[target] = sessions  # the last used one is at the end
            surplus = [sessions.pop(0)] if len(sessions) >= KEPT_PER_TARGET else []
            sessions.append(session)
            if len(self._kept) > KEPT_TARGETS:
                surplus += self._kept.pop(next(iter(self._kept)))
        for each in surplus:
            each.close()


_POOL = Pool()
borrowed = _POOL.borrowed
atexit.register(_POOL.close)
