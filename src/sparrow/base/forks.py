"""Protection of forked processes from their parent's connections.

A forked process has copies of its parent's sockets, and none of its threads. Its writes would get
between the parent's frames, its waiting would never end, and a lock that another thread had taken
stays locked. So an object with a connection is watched here (`watch`), and made unusable in the
child as soon as there is one (`forked`), before any other code runs there: use raises
`UsedAfterFork`, the end of a `with` block does nothing.

A hook was chosen over a comparison of process ids in each call: it costs nothing where messages are
sent one by one.

A child's copies of sockets are pointed elsewhere (`Descriptor.detach`), so that neither a
destructor there reaches the parent's connection, nor a connection stays open because a child lives
longer than its parent.
"""

from __future__ import annotations

import os
import weakref
from contextlib import suppress
from typing import NamedTuple, Protocol

from sparrow.base.errors import UsedAfterFork

_HAS_FORK = hasattr(os, "register_at_fork")


class Forkable(Protocol):
    """An object that is useless in a forked process."""

    def forked(self, parent: int) -> None:
        """Make the object unusable: this is a child of the process `parent`, in which it was
        created.

        Called in the child's only thread, while the object may be in any state; must take no locks
        and call no event loop.
        """
        ...


class _Watch:
    """All watched objects of this process."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.things: weakref.WeakSet[Forkable] = weakref.WeakSet()

    def begin_child(self) -> None:
        parent, self.pid = self.pid, os.getpid()
        things, self.things = list(self.things), weakref.WeakSet()
        for thing in things:
            thing.forked(parent)


_WATCH = _Watch()
if _HAS_FORK:
    os.register_at_fork(after_in_child=_WATCH.begin_child)


def watch(thing: Forkable) -> None:
    """Call `thing.forked` in processes that are forked from here on."""
    _WATCH.things.add(thing)


def used_after_fork(what: str, parent: int) -> UsedAfterFork:
    """Return the error for a user of `what` ("the client of HOST:PORT") in a child of the process
    in which it was created.
    """
    return UsedAfterFork(
        f"{what} was made in process {parent} and cannot be used in process {os.getpid()}, which "
        "was forked from it;"
        " connect after the fork, in the process that uses the client"
    )


class Descriptor(NamedTuple):
    """An open file of this process: its number, and its identity."""

    number: int
    device: int
    inode: int

    @classmethod
    def of(cls, number: int) -> Descriptor | None:
        """Return the open file of this number; None if processes cannot be forked, or it is not
        open.
        """
        if _HAS_FORK:
            with suppress(OSError):
                status = os.fstat(number)
                return cls(number, status.st_dev, status.st_ino)
        return None

    def detach(self) -> None:
        """Point the child's copy at nothing, if it is still the same file. The parent's stays as it
        is.
        """
        with suppress(OSError):
            if Descriptor.of(self.number) == self:
                nothing = os.open(os.devnull, os.O_RDWR)
                os.dup2(nothing, self.number, inheritable=False)
                os.close(nothing)
