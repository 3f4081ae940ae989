"""The command in this process, and data directories as a stopped broker leaves them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sparrow.broker.broker import Broker
from sparrow.cli import main
from sparrow.records.builder import build_batch

NOW_MS = 1_777_636_800_000


@dataclass(frozen=True)
class Outcome:
    """Exit code and output of a command."""

    code: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(capsysbinary) -> Run:
    """Return a function that runs `sparrow ARGUMENTS…` in this process."""

    def run(*arguments: object) -> Outcome:
        capsysbinary.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsysbinary.readouterr()
        return Outcome(code, out.decode(), err.decode())

    return run


async def _fill(path: Path) -> None:
    async with Broker(path) as broker:
        await broker.topics.create("orders", 1)
        for first in range(0, 30, 10):
            values = [b"value %02d" % number for number in range(first, first + 10)]
            batch = build_batch(values, [b"k"] * 10, [(("h", b"x"),)] * 10, NOW_MS)
            await broker.records.publish("orders", 0, batch)


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """Return a cleanly closed data directory: topic orders, one partition, three batches of ten
    messages.
    """
    path = tmp_path / "data"
    asyncio.run(_fill(path))
    return path


@pytest.fixture
def segment(data_dir: Path) -> Path:
    """Return the only segment file in it."""
    return data_dir / "logs" / "orders-0" / "00000000000000000000.log"
