"""Clients as processes of their own that begin at the same moment, as programs that use a broker
are.

They are forked from a small process that has loaded the clients' libraries once: a run starts
hundreds of them.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

Start = Callable[[], float]
"""Called by a client when it is connected: waits for the others, and returns the time at which all
begin (monotonic seconds, the same clock in all processes).
"""
Role = Callable[[Start], Any]
"""The work of one process; importable, as `functools.partial` of a function of a module."""

TIMEOUT_S = 300.0
_CLIENTS = ("aio_pika", "amqp", "confluent", "endpoint", "http", "nats", "pika", "redis", "seeds", "sparrow")
"""Modules of `bench.clients`; those whose libraries are not installed are left out."""
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload([f"bench.clients.{name}" for name in _CLIENTS])


class Span(NamedTuple):
    """When a client began and ended, in monotonic seconds, and what processor time it took
    between.
    """

    began: float
    ended: float
    cpu_s: float = 0.0
    found: Any = None
    """Further results."""


class Stopwatch:
    """Makes a client's `Span`: started when all are ready."""

    def __init__(self, start: Start) -> None:
        self.began = start()
        self._cpu = time.process_time()

    def span(self, found: Any = None) -> Span:
        return Span(self.began, time.monotonic(), time.process_time() - self._cpu, found)


def together(*roles: Role) -> list[Any]:
    """Run each in a process; their results, in order.

    Raises:
        RuntimeError: one failed, with its text; the others are ended.
    """
    barrier = _context.Barrier(len(roles))
    pipes = [_context.Pipe(duplex=False) for _ in roles]
    processes = [
        _context.Process(target=_run, args=(role, barrier, sender), daemon=True)
        for role, (_, sender) in zip(roles, pipes, strict=True)
    ]
    started = []
    try:
        for process, (_, sender) in zip(processes, pipes, strict=True):
            process.start()
            started.append(process)
            sender.close()
        return _results([receiver for receiver, _ in pipes])
    finally:
        for process in started:
            process.kill()
            process.join()


def seconds(spans: list[Span]) -> float:
    """From the first beginning to the last end."""
    return max(span.ended for span in spans) - min(span.began for span in spans)


def _results(receivers: list[Connection]) -> list[Any]:
    results: dict[int, Any] = {}
    deadline = time.monotonic() + TIMEOUT_S
    while len(results) < len(receivers):
        left = [receiver for n, receiver in enumerate(receivers) if n not in results]
        ready = wait(left, max(0.0, deadline - time.monotonic()))
        if not ready:
            raise RuntimeError(f"a client did not end within {TIMEOUT_S:g} s")
        for receiver in ready:
            assert isinstance(receiver, Connection)
            try:
                failure, result = receiver.recv()
            except EOFError:
                failure, result = "a client ended without a result", None
            if failure is not None:
                raise RuntimeError(failure)
            results[receivers.index(receiver)] = result
    return [results[n] for n in range(len(receivers))]


def _run(role: Role, barrier: Any, sender: Connection) -> None:
    def start() -> float:
        barrier.wait(TIMEOUT_S)
        return time.monotonic()

    try:
        sender.send((None, role(start)))
    except BaseException as error:  # noqa: BLE001 - reported to the process that measures
        import traceback

        sender.send((f"{error!r}\n{traceback.format_exc()}", None))
