"""Peers and JVMs, which are slow to start, kept from one workload to the next in short runs.

Workloads ask for them by name, and get fresh ones unless `keeping` is on.
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
    """Keep what `kept` starts in this block until the block ends."""
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
    """Yield the kept thing of that name, or start one. It is ended if the block fails, as it may be
    broken.
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
