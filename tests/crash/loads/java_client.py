"""The Java client of Kafka in a process of its own: an idempotent producer and a group."""

from __future__ import annotations

import asyncio
from pathlib import Path

from sparrow.client import connect
from sparrow.testing.running_broker import RunningBroker
from tests.compat.programs import JavaPrograms
from tests.crash.loads.topic import BURST, PAUSE_S
from tests.crash.publisher import PARTITIONS, Ledger, check, read_all

PROGRAM, GROUP = "NumberedProducer", "NumberedGroup"
PROTOCOLS = ("classic", "consumer")
"""Protocols of Java's groups; the second one is that of KIP-848."""
SMALL = ("-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Options of a virtual machine that leaves the processors to the others."""
PATIENCE_S = 150.0
"""Longer than the client's `delivery.timeout.ms`, after which a record fails."""


class JavaClient:
    """The promise of the native producer, through Kafka's listener and Java's client. A group of
    one member reads each acknowledged record, in order, and none again whose commit was confirmed.
    """

    name = "java"

    def __init__(self, directory: Path, seed: int) -> None:
        """Compile the program. The seed chooses the protocol of the group.

        Raises:
            NotInstalled: Java or Kafka's jars are missing.
        """
        directory.mkdir()
        self._programs = JavaPrograms.compiled(
            [Path(__file__).with_name(f"{name}.java") for name in (PROGRAM, GROUP)], directory
        )
        self._protocol = PROTOCOLS[seed % len(PROTOCOLS)]
        self._errors = directory / "errors.txt"
        self._ledger = Ledger()
        self._read_at: dict[int, set[tuple[int, int]]] = {}
        """The places at which the group has read each number."""
        self._failed: list[str] = []

    async def prepare(self, broker: RunningBroker) -> None:
        async with connect(broker.url) as client:
            await client.admin.create_topic(self.name, partitions=PARTITIONS)

    async def run(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        """Run the program. It ends when its standard input does, also if this process is killed."""
        pace = (str(BURST), str(round(PAUSE_S * 1000)))
        command = self._programs.command(
            PROGRAM, broker.kafka, self.name, str(PARTITIONS), *pace, self._protocol, options=SMALL
        )
        pipe = asyncio.subprocess.PIPE
        with self._errors.open("wb") as errors:
            process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=errors)
        assert process.stdin is not None
        assert process.stdout is not None
        reading = asyncio.create_task(self._read(process.stdout))
        waiting = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({reading, waiting}, return_when=asyncio.FIRST_COMPLETED)
            process.stdin.close()
            async with asyncio.timeout(PATIENCE_S):
                await reading
                code = await process.wait()
            assert code == 0, f"it ended with {code}: {self._errors.read_text()[-2000:]}"
        finally:
            reading.cancel()
            waiting.cancel()
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _read(self, output: asyncio.StreamReader) -> None:
        async for line in output:
            kind, *numbers = line.split()
            if kind == b"acknowledged":
                number, partition, offset = map(int, numbers)
                self._ledger.acknowledged[number] = (partition, offset)
            elif kind == b"read":
                number, partition, offset = map(int, numbers)
                self._read_at.setdefault(number, set()).add((partition, offset))
            elif kind == b"sent":
                self._ledger.sent = int(numbers[0])
            else:
                self._failed.append(line.decode().strip())

    async def check(self, broker: RunningBroker) -> None:
        check(self._ledger, await read_all(broker.url, self.name))
        assert self._failed == [], f"{len(self._failed)} failed: {self._failed[:5]}"
        assert len(self._ledger.acknowledged) == self._ledger.sent
        missed = {
            number: (place, self._read_at.get(number))
            for number, place in self._ledger.acknowledged.items()
            if self._read_at.get(number) != {place}
        }
        assert not missed, (
            f"the group ({self._protocol}) has not read {len(missed)}: {list(missed.items())[:5]}"
        )

    @property
    def progress(self) -> int:
        return len(self._ledger.acknowledged)
