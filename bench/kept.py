"""What takes long to start (a peer, a JVM) may be kept from one workload to the next, where a run
has to be short.

Nobody is handed it through the workloads: they ask for it by name, and get a fresh one unless
`keeping` is on.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from contextvars import ContextVar
from typing import Any

_kept: ContextVar[dict[str, tuple[Any, ExitStack]] | None] = ContextVar("kept", default=None)


@contextlib.contextmanager
def keeping() -> Iterator[None]:
    """What is asked for by `kept` in this block ends with the block."""
    things: dict[str, tuple[Any, ExitStack]] = {}
    token = _kept.set(things)
    try:
        yield
    finally:
        _kept.reset(token)
        with ExitStack() as ends:
            for _, end in things.values():
                ends.push(end)


@contextlib.contextmanager
def kept(name: str, start: Callable[[], AbstractContextManager[Any]]) -> Iterator[Any]:
    """What `start` starts; or the one of that name which is there. One in whose block something
    failed is ended: it may be broken.
    """
    things = _kept.get()
    if things is None:
        with start() as thing:
            yield thing
        return
    if name not in things:
        end = ExitStack()
        things[name] = (end.enter_context(start()), end)
    try:
        yield things[name][0]
    except BaseException:
        things.pop(name)[1].close()
        raise
