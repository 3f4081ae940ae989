"""Queues whose reads or writes wait, or fail."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from sparrow.base.errors import DiskFull, SparrowError
from sparrow.broker.queues.queue import Queue
from sparrow.meta.store import Write

Then = Callable[[SparrowError | None], None]


class Gate:
    """A gate that stops every caller until it is opened."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.opened = asyncio.Event()

    async def pass_through(self) -> None:
        self.reached.set()
        await self.opened.wait()


@contextmanager
def held_up(owner: object, name: str) -> Iterator[Gate]:
    """Make calls of a method wait at a gate."""
    gate, method = Gate(), getattr(owner, name)

    async def through(*args: object, **options: object) -> object:
        await gate.pass_through()
        return await method(*args, **options)

    setattr(owner, name, through)
    try:
        yield gate
    finally:
        setattr(owner, name, method)
        gate.opened.set()


@contextmanager
def unwritten(queue: Queue) -> Iterator[Gate]:
    """Make a queue's writes wait at a gate."""
    gate, store = Gate(), queue.writer._store
    append, tasks = store.append_then, set[asyncio.Task[None]]()

    async def write(writes: Sequence[Write], then: Then) -> None:
        await gate.pass_through()
        append(writes, then)

    store.append_then = lambda writes, then: tasks.add(asyncio.create_task(write(writes, then)))
    try:
        yield gate
    finally:
        store.append_then = append
        gate.opened.set()


@contextmanager
def refused(queue: Queue) -> Iterator[None]:
    """Make what queues write fail, as on a full disk."""
    store = queue.writer._store
    append = store.append_then

    def refuse(_: Sequence[Write], then: Then) -> None:
        asyncio.get_running_loop().call_soon(then, DiskFull("no room"))

    store.append_then = refuse
    try:
        yield
    finally:
        store.append_then = append


@contextmanager
def counted(queue: Queue) -> Iterator[list[Sequence[Write]]]:
    """Note each batch of entries that is written."""
    store, batches = queue.writer._store, list[Sequence[Write]]()
    append = store.append_then

    def note(writes: Sequence[Write], then: Then) -> None:
        batches.append(writes)
        append(writes, then)

    store.append_then = note
    try:
        yield batches
    finally:
        store.append_then = append
