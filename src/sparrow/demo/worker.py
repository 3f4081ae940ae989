"""`python -m sparrow.demo.worker`: one of the competing workers, a separate process so that it can
be killed.

It leases jobs in batches, writes a line for each to the topic of handled commits, waits until the
lines are on stable storage, and only then acknowledges. So the order of that topic proves the order
of the work, and a job whose worker dies in between is delivered again.

Orders come on stdin: a line with the task, then the orders to begin and, after the task's first
jobs, to go on. The victim gets no further: it handles half of another batch, and keeps all of it
leased until kill -9 comes. As all workers wait after the first jobs, there are always some left for
it. The end of stdin ends the worker, so that no process is left behind when the demonstration
itself is killed. On stdout it reports its work, one JSON object per line.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

import sparrow
from sparrow.base.errors import NotLeased, SparrowError

if TYPE_CHECKING:
    from sparrow.client import Client
    from sparrow.client.job import Job
    from sparrow.client.job_batch import JobBatch
    from sparrow.client.producer import Producer
    from sparrow.client.queue import Queue, SettlementFailure

BEGIN, GO_ON = "begin", "go on"
_WAIT_S = 1.0
_RENEW_S = 0.3


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The task: the first line of stdin. The URL may have a secret, so it is on no command line."""

    url: str
    queue: str
    handled_topic: str
    name: str
    batch: int
    """Number of jobs of one lease."""
    first_jobs: int
    """Number of jobs to handle before the order to go on."""
    is_to_hold: bool
    """True: keep the next jobs, to be killed with them."""


class Orders:
    """The orders on stdin; a thread reads them."""

    def __init__(self, main: asyncio.Task[Any]) -> None:
        self.begin = asyncio.Event()
        self.go_on = asyncio.Event()
        self._main = main
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    def _read(self) -> None:
        for line in sys.stdin:
            self._loop.call_soon_threadsafe(self._told, line.strip())
        self._loop.call_soon_threadsafe(self._main.cancel)

    def _told(self, order: str) -> None:
        if order == BEGIN:
            self.begin.set()
        elif order == GO_ON:
            self.go_on.set()


class Losses:
    """Number of jobs that could not be acknowledged, because their lease had ended. They are
    delivered again.
    """

    def __init__(self) -> None:
        self.jobs = 0

    def count(self, failure: SettlementFailure) -> None:
        """Count a failure, which is about a range."""
        self.jobs += failure.last - failure.first + 1


class QueueWorker:
    """Leases, handles, acknowledges."""

    def __init__(self, task: Task, orders: Orders, queue: Queue, producer: Producer, losses: Losses) -> None:
        self._task = task
        self._orders = orders
        self._queue = queue
        self._producer = producer
        self._losses = losses

    async def run(self) -> NoReturn:
        """Work until cancelled."""
        await self._orders.begin.wait()
        left = self._task.first_jobs
        while left > 0:
            left -= await self._work(min(left, self._task.batch))
        if self._task.is_to_hold:
            await self._hold()
        await self._orders.go_on.wait()
        while True:
            await self._work(self._task.batch)

    async def _work(self, most: int) -> int:
        """Process one batch, and return its number of jobs."""
        batch = await self._queue.lease(most, wait_s=_WAIT_S)
        if not batch:
            return 0
        began = time.monotonic()
        with Renewal(batch):
            await self._handle(batch.jobs)
        lost_before = self._losses.jobs
        batch.ack_nowait()
        await self._queue.flush()
        lost = self._losses.jobs - lost_before
        tell(handled=len(batch) - lost, lost=lost, ms=round((time.monotonic() - began) * 1000, 2))
        return len(batch)

    async def _handle(self, jobs: list[Job]) -> None:
        for job in jobs:
            line = {"hash": job.message_id, "worker": self._task.name, "attempt": job.delivery_count}
            await self._producer.send(self._task.handled_topic, msgspec.json.encode(line))
        await self._producer.flush()

    async def _hold(self) -> NoReturn:
        """Hold jobs until kill -9 comes. Where a stall of the machine ends their leases, others are
        leased.
        """
        while True:
            batch = await self._queue.lease(self._task.batch, wait_s=_WAIT_S)
            if not batch:
                continue
            with Renewal(batch) as renewal:
                handled = batch.jobs[: (len(batch) + 1) // 2]
                await self._handle(handled)
                tell(holds=[job.message_id for job in batch.jobs], of_them_handled=len(handled))
                await renewal.ended.wait()
            tell(handled=0, lost=len(handled), ms=0)


class Renewal:
    """Keeps a batch leased while it is processed, from a moment after the lease on. A timer, as
    most batches are done before it fires.
    """

    def __init__(self, batch: JobBatch) -> None:
        self._batch = batch
        self._loop = asyncio.get_running_loop()
        self.ended = asyncio.Event()
        """A lease could not be renewed."""

    def __enter__(self) -> Self:
        self._timer = self._loop.call_later(_RENEW_S, self._renew)
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def _renew(self) -> None:
        try:
            self._batch.extend().add_done_callback(self._look)
        except NotLeased:
            self.ended.set()
            return
        self._timer = self._loop.call_later(_RENEW_S, self._renew)

    def _look(self, renewed: asyncio.Future[None]) -> None:
        if not renewed.cancelled() and renewed.exception() is not None:
            self.ended.set()


def tell(**report: object) -> None:
    """Report one line to the demonstration."""
    print(json.dumps(report), flush=True)


async def work(task: Task) -> None:
    """Work until stdin ends."""
    main = asyncio.current_task()
    assert main is not None
    orders = Orders(main)
    try:
        async with sparrow.connect(task.url, client_name=task.name) as client:
            await _work_with(client, task, orders)
    except asyncio.CancelledError:
        return


async def _work_with(client: Client, task: Task, orders: Orders) -> None:
    losses = Losses()
    async with (
        client.queue(task.queue, create=False, on_failure=losses.count) as queue,
        client.producer(acks="all", linger_ms=0) as producer,
    ):
        tell(ready=os.getpid())
        await QueueWorker(task, orders, queue, producer, losses).run()


def main() -> int:
    """Run the worker, and return the exit code."""
    task = msgspec.json.decode(sys.stdin.readline(), type=Task)
    try:
        asyncio.run(work(task))
    except SparrowError as error:
        print(error.text, file=sys.stderr, flush=True)
        return 1
    except BrokenPipeError:
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
