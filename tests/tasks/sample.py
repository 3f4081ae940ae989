"""An app for tests; worker processes import it, too."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import threading
import time
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pydantic

import sparrow
from sparrow.tasks import current_job

REQUEST: ContextVar[str] = ContextVar("request")
_KEPT: list[bytes] = []
_ENDING = asyncio.Event()

app = sparrow.Tasks("sample", context=[REQUEST], queues={"quick": {"lease": "5s"}})


@dataclass
class Address:
    street: str
    number: int


class Item(msgspec.Struct):
    name: str
    count: int = 1


class Customer(pydantic.BaseModel):
    name: str
    age: int


@app.task(results=True, retries=0)
async def describe(
    address: Address, items: list[Item], customer: Customer, *, job: sparrow.Job
) -> dict[str, object]:
    assert isinstance(address, Address)
    assert isinstance(items[0], Item)
    assert isinstance(customer, Customer)
    return {"street": address.street, "items": len(items), "age": customer.age, "attempt": job.delivery_count}


@app.task(results=True, retries=0)
def add(first: int, second: int = 10) -> int:
    return first + second


@app.task(results=True, retries=0)
async def total(numbers: list[int | None]) -> int:
    return sum(number or 0 for number in numbers)


@app.task(results=True, retries=0)
async def one() -> int:
    return 1


@app.task(results=True, retries=2, backoff_delay="10ms")
async def fail(text: str) -> None:
    raise ValueError(text)


@app.task(results=True, retries=3)
async def fail_once(path: str) -> int:
    if is_first(path):
        raise ValueError("the first time")
    return current_job().attempt


@app.task(results=True, retries=0)
async def unencodable() -> object:
    return {object()}


@app.task(results=True, retries=0, timeout="200ms")
async def slow() -> None:
    await asyncio.sleep(60)


@app.task(results=True, retries=0, timeout="200ms")
def slow_thread() -> None:
    time.sleep(0.5)


@app.task(retries=0, timeout="100ms", hard_timeout="300ms", queue="quick")
def endless_thread() -> None:
    threading.Event().wait()


@app.task(retries=0, hard_timeout="300ms", queue="limited")
def endless_thread_without_timeout() -> None:
    threading.Event().wait()


@app.task(retries=1, backoff_delay="10ms", hard_timeout="500ms", queue="limited", results=True)
async def blocking(path: str, spins: bool) -> int:
    """Block the event loop, by a loop of Python's or a call, in the first attempt. The jobs of
    `ending_before` have returned then, and the broker does not know.
    """
    if current_job().attempt == 1:
        _ENDING.set()
        await asyncio.sleep(0)
        note(path, "blocking")
        while spins:
            pass
        threading.Event().wait()
    note(path, "blocking")
    return current_job().attempt


@app.task(retries=0, queue="limited")
async def ending_before(path: str) -> None:
    note(f"{path}.begun", "ending")
    await _ENDING.wait()
    note(path, "ending")


@app.task(retries=1, backoff_delay="10ms", hard_timeout="500ms", queue="limited", results=True)
async def starting_a_blocking_task() -> int:
    async def block() -> None:
        threading.Event().wait()

    if current_job().attempt == 1:
        await asyncio.create_task(block())
    return current_job().attempt


@app.task(retries=0, hard_timeout="500ms", queue="limited", results=True)
async def blocking_always() -> None:
    threading.Event().wait()


@app.task(retries=0, timeout="200ms", hard_timeout="500ms", queue="limited", results=True)
async def uncancellable() -> None:
    while True:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


@app.task(retries=0, hard_timeout="200ms", queue="limited", results=True)
async def too_long() -> None:
    await asyncio.sleep(60)


@app.task(retries=0, timeout="100ms", hard_timeout="60s", queue="limited", results=True)
async def cleaning(value: int) -> int:
    """Return after the cancellation."""
    with contextlib.suppress(asyncio.CancelledError):
        await asyncio.sleep(60)
    return value


@app.task(retries=0, queue="quick")
def grow(megabytes: int) -> None:
    """Keep memory for as long as the process lives."""
    _KEPT.append(b"x" * (megabytes << 20))


@app.task(results=True, retries=0, executor="process", queue="processes")
def process_id(*, job: sparrow.TaskJob) -> int:
    job.progress(0.5, "half of it")
    return os.getpid()


@app.task(results=True, retries=0, executor="process", timeout="300ms", queue="processes")
def slow_process() -> None:
    time.sleep(60)


@app.task(
    results=True, retries=0, executor="process", timeout="200ms", hard_timeout="500ms", queue="processes"
)
def stubborn() -> None:
    while True:
        with contextlib.suppress(TimeoutError):
            time.sleep(60)


@app.task(results=True, retries=1, executor="process", queue="processes")
def crash() -> None:
    ctypes.string_at(0)


@app.task(results=True, retries=0)
async def request_of_sender(change: str) -> str:
    before = REQUEST.get("none")
    REQUEST.set(change)
    await asyncio.sleep(0)
    return before


@app.task(results=True, retries=0)
def request_in_thread(change: str) -> str:
    before = REQUEST.get("none")
    REQUEST.set(change)
    return before


@app.task(results=True, retries=0, executor="process", queue="processes")
def request_in_process(change: str) -> str:
    before = REQUEST.get("none")
    REQUEST.set(change)
    return before


@app.task(results=True, retries=0)
async def report() -> int:
    job = current_job()
    job.progress(0.4, "reading")
    return job.attempt


@app.task(results=True, retries=0)
async def read(path: str) -> str:
    """Report progress, and wait for a line of a pipe."""
    current_job().progress(0.4, "reading")
    return await asyncio.to_thread(first_line, path)


@app.task(results=True, retries=0)
def read_in_thread(path: str) -> str:
    current_job().progress(0.4, "reading")
    return first_line(path)


@app.task(results=True, retries=0, executor="process", queue="processes")
def read_in_process(path: str) -> str:
    current_job().progress(0.4, "reading")
    return first_line(path)


@app.task(results=True, retries=0)
async def look_at_own_result(*, job: sparrow.TaskJob) -> list[str]:
    """Return the ID of the job's result, and the progress that its sender sees."""
    job.progress(0.25, "a quarter")
    async with asyncio.timeout(60):
        while (found := await job.result.progress()).state == "waiting":
            await asyncio.sleep(0.02)
    return [job.result.id, found.text]


@app.task(queue="quick", retries=4)
async def append(path: str, line: str, seconds: float = 0.0) -> None:
    """Note the attempt, work for some time, and write a line."""
    if seconds:
        note(f"{path}.begun", line)
        await asyncio.sleep(seconds)
    note(path, line)


@app.task(queue="limited")
async def note_from_limited(path: str) -> None:
    note(path, "limited")


@app.task
async def note_from_sample(path: str) -> None:
    note(path, "sample")


@app.task(queue="quick", retries=4)
async def append_when_told(path: str, line: str, pipe: str) -> None:
    """Note the attempt, wait for a line of a pipe, and write a line."""
    note(f"{path}.begun", line)
    await asyncio.to_thread(first_line, pipe)
    note(path, line)


def first_line(path: str) -> str:
    with Path(path).open() as file:
        return file.readline()


def note(path: str, line: str) -> None:
    """Append a line with the number of the attempt to a file."""
    with Path(path).open("a") as file:
        file.write(f"{line} {current_job().attempt}\n")


def is_first(path: str) -> bool:
    """Return True at the first call for a path."""
    file = Path(path)
    if file.exists():
        return False
    file.touch()
    return True
