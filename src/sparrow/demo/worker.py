"""`python -m sparrow.demo.worker`: one of the competing workers, a separate process so that it can
be killed.

For each job it writes a line to the topic of handled commits, waits until the line is on stable
storage, and only then is the job acknowledged. So the order of that topic proves the order of the
work, and a job whose worker dies in between is delivered again.

Orders come on stdin: a line with the task and, after the task's first jobs, one to go on. The
victim gets no further: it handles half of its next jobs, keeps all of them until kill -9 comes, and
says so on stdout. As all workers stop after the first jobs, there are always some left for it. The
end of stdin ends the worker, so that no process is left behind when the demonstration itself is
killed; then it prints how long its jobs took.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from contextlib import suppress
from typing import NoReturn

import msgspec

import sparrow
from sparrow.base.errors import SparrowError

_WAIT_S = 1.0
_RENEW_S = 0.3


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """The task: the first line of stdin. The URL may have a secret, so it is on no command line."""

    url: str
    queue: str
    handled_topic: str
    name: str
    batch: int
    """Number of jobs that it handles at a time."""
    first_jobs: int
    """Number of jobs to handle before the order to continue."""
    is_to_hold: bool
    """True: keep the next jobs, to be killed with them."""


class HandledLine(msgspec.Struct, frozen=True):
    """The line that a worker writes of a job. `attempt` counts from 1."""

    hash: str
    worker: str
    attempt: int


class DemoWorker:
    """Handles the jobs of one task."""

    def __init__(self, task: Task, client: sparrow.Client, producer: sparrow.Producer) -> None:
        self._task = task
        self._client = client
        self._producer = producer
        self._left = task.first_jobs
        self.latencies_ms: list[float] = []
        self._stopping: asyncio.Task[None] | None = None
        self._may_go_on = asyncio.Event()
        client.worker(task.queue, concurrency=task.batch, prefetch=task.batch, create=False)(self.handle)

    async def obey(self, orders: asyncio.StreamReader) -> None:
        """Read orders to their end."""
        if await orders.readline():
            self._may_go_on.set()
            await orders.read()

    async def run(self) -> None:
        """Work as ordered, until cancelled."""
        if self._task.first_jobs:
            await self._client.run_workers(handle_signals=False)
        if self._task.is_to_hold:
            await self._hold()
        await self._may_go_on.wait()
        self._left = sys.maxsize
        await self._client.run_workers(handle_signals=False)

    async def handle(self, job: sparrow.Job) -> None:
        """Handle one job; after the first ones, stop."""
        began = time.monotonic()
        await self._write(job)
        self.latencies_ms.append(round((time.monotonic() - began) * 1000, 2))
        self._left -= 1
        if self._left == 0:
            self._stopping = asyncio.create_task(self._client.stop_workers())

    async def _write(self, job: sparrow.Job) -> None:
        line = HandledLine(job.message_id, self._task.name, job.delivery_count)
        await (await self._producer.send(self._task.handled_topic, msgspec.json.encode(line)))

    async def _hold(self) -> NoReturn:
        """Hold jobs until kill -9 comes. Where a stall of the machine ends their leases, others are
        leased.
        """
        async with self._client.queue(self._task.queue, create=False) as queue:
            while True:
                batch = await queue.lease(self._task.batch, wait_s=_WAIT_S)
                handled = batch.jobs[: (len(batch) + 1) // 2]
                await asyncio.gather(*map(self._write, handled))
                if batch:
                    holds = [job.message_id for job in batch.jobs]
                    print(json.dumps({"holds": holds, "handled": len(handled)}), flush=True)
                with suppress(SparrowError):
                    while batch:
                        await batch.extend()
                        await asyncio.sleep(_RENEW_S)


async def work() -> None:
    """Do the task on stdin until stdin ends.

    Raises:
        SparrowError: the work failed.
    """
    orders = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(orders)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    task = msgspec.json.decode(await orders.readline(), type=Task)
    async with (
        sparrow.connect(task.url, client_name=task.name) as client,
        client.producer(acks="all", linger_ms=0) as producer,
    ):
        worker = DemoWorker(task, client, producer)
        running = asyncio.create_task(worker.run())
        await asyncio.wait([running, asyncio.create_task(worker.obey(orders))], return_when="FIRST_COMPLETED")
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        print(json.dumps(worker.latencies_ms), flush=True)


def main() -> int:
    """Run the worker, and return the exit code."""
    try:
        asyncio.run(work())
    except SparrowError as error:
        print(error.text, file=sys.stderr, flush=True)
        return 1
    except BrokenPipeError:
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
