"""Queues whose reads or writes wait, or fail."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from sparrow.base.errors import DiskFull
from sparrow.broker.queues.queue import Queue
from sparrow.meta.store import Write


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
    append = store.append

    async def write(writes: Sequence[Write]) -> None:
        await gate.pass_through()
        await append(writes)

    store.append = lambda writes: asyncio.ensure_future(write(writes))
    try:
        yield gate
    finally:
        store.append = append
        gate.opened.set()


@contextmanager
def refused(queue: Queue) -> Iterator[None]:
    """Make what queues write fail, as on a full disk."""
    store = queue.writer._store
    append = store.append

    def refuse(_: Sequence[Write]) -> asyncio.Future[None]:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.set_exception(DiskFull("no room"))
        return future

    store.append = refuse
    try:
        yield
    finally:
        store.append = append


@contextmanager
def counted(queue: Queue) -> Iterator[list[Sequence[Write]]]:
    """Note each batch of entries that is written."""
    store, batches = queue.writer._store, list[Sequence[Write]]()
    append = store.append

    def note(writes: Sequence[Write]) -> asyncio.Future[None]:
        batches.append(writes)
        return append(writes)

    store.append = note
    try:
        yield batches
    finally:
        store.append = append
