"""A raw client: one socket, one `Connection(Role.CLIENT)`, and no layer that hides frames from a
test.
"""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Any, TypeVar

from sparrow.base.errors import from_code
from sparrow.broker.access.authz import ANONYMOUS, Principal
from sparrow.frontends.native.frontend import NativeFrontend
from sparrow.frontends.native.limits import NativeLimits
from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Connection, Received, Role
from sparrow.records.batch import split
from sparrow.records.builder import build_batch
from sparrow.records.record import decode

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.broker import Broker

H = TypeVar("H", bound=m.Head)
WAIT_S = 10.0


class LetIn:
    """An authenticator that accepts every client as ANONYMOUS."""

    def authenticate(self, credentials: Any, peer: str) -> Principal:
        return ANONYMOUS


class Listener:
    """A real frontend of a real broker, on a free port."""

    def __init__(self, broker: Broker, frontend: NativeFrontend, port: int) -> None:
        self.broker = broker
        self.frontend = frontend
        self.port = port
        self._clients: list[RawClient] = []

    async def client(self, **hello: Any) -> RawClient:
        client = await self.silent_client()
        await client.hello(**hello)
        return client

    async def silent_client(self) -> RawClient:
        client = RawClient(*await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 16))
        self._clients.append(client)
        return client

    async def close(self) -> None:
        for client in self._clients:
            client.close()
        await self.frontend.drain(1.0)


class OpenListener:
    """Starts frontends that are closed at the end of the test."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    async def __call__(self, broker: Broker, authenticator: Any = None, **limits: int) -> Listener:
        frontend = NativeFrontend(
            broker, authenticator=authenticator or LetIn(), limits=NativeLimits(**limits)
        )
        listener = Listener(broker, frontend, await frontend.start("127.0.0.1", 0))
        self._listeners.append(listener)
        return listener

    async def close(self) -> None:
        for listener in self._listeners:
            await listener.close()


class RawClient:
    """Sends and receives single frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.connection = Connection(Role.CLIENT)
        self.waiting: list[Received] = []
        self._refs = itertools.count(1)

    async def hello(self, **fields: Any) -> m.Welcome:
        self.send(m.Hello("sparrow", 1, 1, **fields))
        return await self.expect(m.Welcome)

    def send(self, head: m.Head, channel: int = 0, batches: bytes | None = None) -> None:
        self.connection.send(head, channel, batches)
        self.writer.writelines(self.connection.data_to_send())

    def send_raw(self, data: bytes) -> None:
        self.writer.write(data)

    async def receive(self) -> Received:
        """Return the next frame. Raise ConnectionResetError at the end of the stream."""
        while not self.waiting:
            data = await asyncio.wait_for(self.reader.read(1 << 18), WAIT_S)
            if not data:
                raise ConnectionResetError
            self.connection.receive_data(data)
            self.waiting += self.connection.events()  # type: ignore[arg-type]
            self.writer.writelines(self.connection.data_to_send())
        return self.waiting.pop(0)

    async def expect(self, kind: type[H], channel: int = 0) -> H:
        """Return the next frame, which must be of this type and on this channel."""
        event = await self.receive()
        assert isinstance(event.head, kind), event
        assert event.channel == channel, event
        self.batches = b"" if event.batches is None else bytes(event.batches)
        return event.head

    async def nothing_comes(self, turns: int = 50) -> bool:
        """Return True if nothing arrives for a while. It ends with a ping that must be answered
        first.
        """
        self.send(m.Ping(99))
        for _ in range(turns):
            await asyncio.sleep(0)
        return (await self.receive()).head == m.Pong(99)

    async def at_eof(self) -> bool:
        """Read to the end of the stream."""
        try:
            while True:
                await self.receive()
        except ConnectionResetError:
            return True

    async def call(self, verb: str, **arguments: Any) -> Any:
        ref = next(self._refs)
        self.send(m.Request(ref, verb, arguments))
        response = await self.expect(m.Response)
        assert response.ref == ref
        if response.failure:
            raise from_code(response.failure.code, response.failure.text)
        return response.result

    async def open_producer(self, channel: int = 1, *, idempotent: bool = False) -> m.ProducerOpened:
        self.send(m.OpenProducer(idempotent), channel)
        return await self.expect(m.ProducerOpened, channel)

    async def publish(self, topic: str, *values: bytes, channel: int = 1, acks: int = -1) -> m.Confirmation:
        """Publish one batch and wait for its confirmation."""
        self.send(m.Publish(next(self._refs), topic, 0, acks), channel, batch_of(*values))
        return (await self.expect(m.Confirm, channel)).confirmations[0]

    async def subscribe(
        self, *topics: str, channel: int = 2, start: str = "beginning", **fields: Any
    ) -> m.Subscribed:
        selectors = [m.Selector(t, "*" in t, m.Start(start)) for t in topics]
        self.send(m.Subscribe(selectors, **fields), channel)
        return await self.expect(m.Subscribed, channel)

    async def deliveries(self, count: int, channel: int = 2) -> list[bytes | None]:
        """Return the values of the next deliveries until there are `count`."""
        found: list[bytes | None] = []
        while len(found) < count:
            head = await self.expect(m.Deliver, channel)
            found += values_of(self.batches, head.offset)
        return found

    def close(self) -> None:
        self.writer.close()


def batch_of(*values: bytes, clock: Clock | None = None, **fields: int) -> bytes:
    now_ms = clock.wall_ms() if clock else 1_700_000_000_000
    return build_batch(list(values), timestamps=[now_ms] * len(values), **fields)


def values_of(data: bytes, offset: int = 0) -> list[bytes | None]:
    return [r.value for _, view in split(data) for r in decode(view) if r.offset >= offset]
