"""Raw bytes into the Kafka frontend: `python -m fuzz.kafka_requests [libFuzzer's arguments]`.

The frontend, the broker behind it and its stores are real, the transport and the disk are in
memory. The fuzzer's bytes are those of a client: the first one decides how the rest is cut into
reads, then come frames, damaged or not. The frontend must respond or close the connection in any
case: an exception inside a handler is logged as an error, and that is what the fuzzer searches,
beside hangs and memory.
"""

from __future__ import annotations

import asyncio
import logging
import struct
import sys
import traceback
from typing import Any

import atheris

with atheris.instrument_imports(include=["sparrow"]):
    from sparrow.broker.broker import Broker
    from sparrow.frontends.kafka.apis import APIS
    from sparrow.frontends.kafka.connection import KafkaConnection
    from sparrow.frontends.kafka.context import Listener
    from sparrow.frontends.kafka.dispatch import preload
    from sparrow.frontends.kafka.frontend import KafkaFrontend
    from sparrow.meta.memory import MemoryMetaStore
    from sparrow.storage.faulty import FaultyFileSystem
    from sparrow.storage.local import LocalLogStore
    from sparrow.storage.options import StorageOptions

LIMIT_BYTES = 1 << 20
LOOP_ITERATIONS = 40
"""Iterations of the event loop for one input."""


class Transport:
    """A transport that discards what is sent."""

    def __init__(self) -> None:
        self.is_closed = False

    def set_write_buffer_limits(self, high: int) -> None: ...
    def pause_reading(self) -> None: ...
    def resume_reading(self) -> None: ...
    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 9) if name in {"peername", "sockname"} else default

    def writelines(self, pieces: list[bytes]) -> None:
        frame = b"".join(pieces)
        assert len(frame) >= 8, "an answer has a length and a correlation id"

    def write(self, data: bytes) -> None: ...
    def write_eof(self) -> None: ...
    def can_write_eof(self) -> bool:
        return True

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.is_closed

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Bugs(logging.Handler):
    """Collects the frontend's errors, which are bugs; it reports bad bytes by warnings."""

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            traceback.print_exception(record.exc_info[1])  # atheris shows the last exception alone
        raise AssertionError(record.getMessage())


class Target:
    """One frontend for the whole run."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self.loop)
        logging.getLogger("sparrow").addHandler(Bugs(logging.ERROR))
        logging.getLogger("sparrow").propagate = False
        self.frontend = self.loop.run_until_complete(self._open())

    async def _open(self) -> KafkaFrontend:
        options = StorageOptions(flush_threads=0, worker_threads=0, flush_interval_ms=0, reserve_bytes=0)
        logs = LocalLogStore("/data", FaultyFileSystem(0), options=options)
        broker = Broker(log_store=logs, meta_store=MemoryMetaStore())
        await broker.start()
        await broker.create_topic("t", 2)
        preload()
        return KafkaFrontend(broker)

    def feed(self, data: bytes) -> None:
        """Play one client from connecting to closing."""
        self.loop.run_until_complete(self._feed(data))

    async def _feed(self, data: bytes) -> None:
        listener = Listener("fuzz", "localhost", 0, "localhost", 9092)
        connection = KafkaConnection(self.frontend, listener)
        transport = Transport()
        connection.connection_made(transport)  # type: ignore[arg-type]
        step = max(1, data[0]) * 8 if data else 1
        for start in range(1, len(data), step):
            _read(connection, data[start : start + step])
            await asyncio.sleep(0)
        for _ in range(LOOP_ITERATIONS):
            await asyncio.sleep(0)
        transport.close()
        connection.connection_lost(None)
        await asyncio.sleep(0)


def _read(connection: KafkaConnection, data: bytes) -> None:
    while data:
        buffer = connection.get_buffer(-1)
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]


def _mutate(data: bytes, size: int, seed: int) -> bytes:
    """Now and then give the first frame a true length and a served key and version: most bytes fail
    there otherwise.
    """
    mutated = bytearray(atheris.Mutate(data, size))
    if len(mutated) > 14 and seed % 4:
        keys = sorted(APIS)
        api = APIS[keys[seed % len(keys)]]
        version = api.first + seed // 7 % (api.last - api.first + 1)
        struct.pack_into(">ihhih", mutated, 1, len(mutated) - 5, api.key, version, 1, -1)
    return bytes(mutated[:size])


def main() -> None:
    target: list[Target] = []

    def once(data: bytes) -> None:
        if not target:
            target.append(Target())
        target[0].feed(data[:LIMIT_BYTES])

    atheris.Setup(sys.argv, once, custom_mutator=_mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
