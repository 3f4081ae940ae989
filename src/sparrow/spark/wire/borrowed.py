"""Links that a process keeps for later tasks: connecting costs a task of a short micro-batch more than its read.

A worker runs one task after the other, so a few links are enough. One that broke, or that still has something under way, is not kept. A
forked process begins with none: two processes on one socket would read each other's answers.
"""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sparrow.spark.wire.link import Link, connect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sparrow.spark.wire.target import Target

KEPT_PER_TARGET: Final = 4
KEPT_TARGETS: Final = 8


class Pool:
    """The links of one process. Thread-safe; a link is one borrower's at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._kept: dict[Target, list[Link]] = {}

    @contextmanager
    def borrowed(self, target: Target, *, patience_s: float = 0.0) -> Iterator[Link]:
        """A link for a block of code, with so much patience (`Link.patience_s`)."""
        link = self._take(target) or connect(target, patience_s=patience_s)
        link.patience_s = patience_s
        try:
            yield link
        except (KeyboardInterrupt, SystemExit):  # it may have come in the middle of anything
            link.drop()
            raise
        finally:
            self._give_back(target, link)

    def close(self) -> None:
        """Give all sockets back."""
        with self._lock:
            if self._pid != os.getpid():
                self._forget_parents()
            kept, self._kept = self._kept, {}
        for links in kept.values():
            for link in links:
                link.close()

    def _take(self, target: Target) -> Link | None:
        with self._lock:
            if self._pid != os.getpid():
                self._forget_parents()
            links = self._kept.get(target)
            return links.pop() if links else None

    def _give_back(self, target: Target, link: Link) -> None:
        if not link.is_clean:
            link.close()
            return
        with self._lock:
            links = self._kept.pop(target, [])
            self._kept[target] = links  # the last used stands last
            surplus = [links.pop(0)] if len(links) >= KEPT_PER_TARGET else []
            links.append(link)
            if len(self._kept) > KEPT_TARGETS:
                surplus += self._kept.pop(next(iter(self._kept)))
        for each in surplus:
            each.close()

    def _forget_parents(self) -> None:
        self._pid = os.getpid()
        kept, self._kept = self._kept, {}
        for links in kept.values():
            for link in links:
                link.drop()


_POOL = Pool()
borrowed = _POOL.borrowed
atexit.register(_POOL.close)
