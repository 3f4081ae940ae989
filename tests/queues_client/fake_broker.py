"""A broker with one queue in memory that is controlled by the test: it delays responses, refuses,
cuts the connection.

The queue is one topic with one partition; a record is ready, leased by a consumer, or done. It uses
the same sans-IO state machine as a real broker, so a client that violates the protocol loses its
connection.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Connection as Machine
from sparrow.protocol.native.connection import Received, Role, State
from sparrow.records.builder import build_batch

TOPIC = "jobs"
READY = ""


@dataclass
class Item:
    """A record of the queue."""

    value: bytes
    holder: str = READY
    deliveries: int = 0
    is_done: bool = False
    error: str = ""


@dataclass
class Channel:
    """A consumer's channel on one connection."""

    head: m.OpenQueue
    credit: int = 0
    ask: m.Lease | None = None


@dataclass
class FakeBroker:
    lease_ms: int = 30_000
    items: list[Item] = field(default_factory=list)
    heads: list[m.Head] = field(default_factory=list)
    """Everything that clients sent on channels, in order."""
    counts: Counter[str] = field(default_factory=Counter)
    """ACK, NACK, … as they took effect, by record."""
    refusals: list[m.Error] = field(default_factory=list)
    """Errors for the next channels."""
    failures: list[m.SettleFailure] = field(default_factory=list)
    """Failures of the next SETTLEs, one for each, whatever their content; without effect."""
    is_silent: bool = False
    """SETTLEs take effect, and get no response."""
    is_deaf: bool = False
    """SETTLEs are lost."""
    is_slow: bool = False
    """Channels are opened by `open_channels`, not at once."""
    max_push: int = 1000
    port: int = 0

    def __post_init__(self) -> None:
        self._server: asyncio.Server | None = None
        self.connections: list[Connection] = []

    @property
    def url(self) -> str:
        return f"sparrow://127.0.0.1:{self.port}"

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Connection(self), "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    def cut(self) -> None:
        """Cut all connections."""
        for connection in self.connections:
            connection.transport.abort()
        self.connections.clear()

    def add(self, *values: bytes) -> None:
        """Publish records."""
        self.items += [Item(value) for value in values]
        self.deliver()

    def expire(self, *offsets: int) -> None:
        """Let leases expire."""
        for offset in offsets:
            self.items[offset].holder = READY
        self.deliver()

    def deliver(self) -> None:
        for connection in list(self.connections):
            connection.deliver()

    def settles(self) -> list[m.Settle]:
        return [head for head in self.heads if isinstance(head, m.Settle)]

    @property
    def done(self) -> list[int]:
        return [offset for offset, item in enumerate(self.items) if item.is_done]

    @property
    def held(self) -> list[int]:
        return [offset for offset, item in enumerate(self.items) if item.holder]

    def take(self, holder: str, max_records: int) -> list[tuple[int, int, int]]:
        """Lease ready records, as ranges."""
        ranges: list[tuple[int, int, int]] = []
        for offset, item in enumerate(self.items):
            if max_records <= 0:
                break
            if item.is_done or item.holder:
                continue
            max_records -= 1
            item.holder = holder
            item.deliveries += 1
            if ranges and ranges[-1][1] == offset - 1 and ranges[-1][2] == item.deliveries:
                ranges[-1] = (ranges[-1][0], offset, item.deliveries)
            else:
                ranges.append((offset, offset, item.deliveries))
        return ranges

    def batch(self, ranges: list[tuple[int, int, int]]) -> bytes:
        first, last = ranges[0][0], ranges[-1][1]
        return build_batch([item.value for item in self.items[first : last + 1]], base_offset=first)

    def settle(self, holder: str, settlement: m.Settlement, first: int, last: int) -> str:
        """Apply a settlement to a range; return the code of the failure, or ""."""
        items = self.items[first : last + 1]
        for item in items:
            if item.holder != holder:
                if item.is_done:
                    return "NOT_LEASED"
                return "LEASED_BY_ANOTHER" if item.holder else "LEASE_EXPIRED"
        verb = m.SettleVerb(settlement.verb)
        self.counts[verb.name] += len(items)
        for item in items:
            if verb is not m.SettleVerb.EXTEND:
                item.holder = READY
            item.is_done = verb in {m.SettleVerb.ACK, m.SettleVerb.REJECT}
            item.error = settlement.text or item.error
            if verb is m.SettleVerb.RETURN:
                item.deliveries -= 1
        return ""


class Connection(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.machine = Machine(Role.BROKER)
        self.channels: dict[int, Channel] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.broker.connections.append(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self.broker.connections:
            self.broker.connections.remove(self)

    def data_received(self, data: bytes) -> None:
        self.machine.receive_data(data)
        for event in self.machine.events():
            assert isinstance(event, Received), event
            self.handle(event.channel, event.head)
        self.flush()
        self.broker.deliver()

    def flush(self) -> None:
        self.transport.writelines(self.machine.data_to_send())
        if self.machine.state is State.CLOSED:
            self.transport.close()

    def send(self, head: m.Head, number: int = 0, batches: bytes | None = None) -> None:
        self.machine.send(head, number, batches)
        self.flush()

    def handle(self, number: int, head: m.Head) -> None:
        if isinstance(head, m.Hello):
            self.send(m.Welcome(1, "fake", "cluster", "connection", 16 << 20, 256, 0))
        elif isinstance(head, m.Goodbye):
            self.send(m.Goodbye())
        elif isinstance(head, m.Request):
            self.send(m.Response(head.ref, None, answer(head)))
        else:
            self.broker.heads.append(head)
            self.handle_channel(number, head)

    def handle_channel(self, number: int, head: m.Head) -> None:
        broker = self.broker
        if isinstance(head, m.OpenQueue):
            if broker.refusals:
                self.send(broker.refusals.pop(0), number)
                return
            self.channels[number] = Channel(head)
            if not broker.is_slow:
                self.open_channel(number)
            return
        channel = self.channels[number]
        if isinstance(head, m.QueueCredit):
            channel.credit += head.records
        elif isinstance(head, m.Lease):
            channel.ask = head
            if head.wait_ms:
                asyncio.get_running_loop().call_later(head.wait_ms / 1000, self.answer_ask, number, head)
            else:
                self.deliver()
                self.answer_ask(number, head)
        elif isinstance(head, m.Settle):
            self.settle(number, channel, head)
        elif isinstance(head, m.Close):
            for item in broker.items:
                if item.holder == channel.head.consumer_id:
                    item.holder = READY
            del self.channels[number]
            self.send(m.Closed(), number)

    def open_channel(self, number: int) -> None:
        self.send(m.QueueOpened(self.channels[number].head.consumer_id, self.broker.lease_ms), number)

    def settle(self, number: int, channel: Channel, head: m.Settle) -> None:
        broker = self.broker
        if broker.is_deaf:
            return
        failures = []
        if broker.failures:
            failures = [broker.failures.pop(0)]
        else:
            for index, settlement in enumerate(head.settlements):
                for position, (first, last) in enumerate(settlement.ranges):
                    code = broker.settle(channel.head.consumer_id, settlement, first, last)
                    if code:
                        failures.append(m.SettleFailure(index, position, code, f"the fake says {code}"))
        if not broker.is_silent:
            self.send(m.Settled(head.ref, failures), number)

    def answer_ask(self, number: int, ask: m.Lease) -> None:
        channel = self.channels.get(number)
        if channel is not None and channel.ask is ask and not self.transport.is_closing():
            channel.ask = None
            self.send(m.LeaseDone(ask.ref, 0), number)

    def deliver(self) -> None:
        broker = self.broker
        for number, channel in self.channels.items():
            ask, holder = channel.ask, channel.head.consumer_id
            while channel.credit > 0 and (
                ranges := broker.take(holder, min(channel.credit, broker.max_push))
            ):
                channel.credit -= sum(last - first + 1 for first, last, _ in ranges)
                self.push(number, -1, ranges)
            if ask is not None and (ranges := broker.take(holder, ask.max_records)):
                channel.ask = None
                self.push(number, ask.ref, ranges)
                self.send(m.LeaseDone(ask.ref, len(ranges)), number)

    def push(self, number: int, ref: int, ranges: list[tuple[int, int, int]]) -> None:
        broker = self.broker
        self.send(m.Leased(ref, TOPIC, 0, broker.lease_ms, ranges), number, broker.batch(ranges))


def answer(request: m.Request) -> Any:
    if request.verb == "queue.describe":
        return {
            "name": "jobs",
            "id": "1",
            "kind": "queue",
            "topics": [TOPIC],
            "policy": {},
            "is_paused": False,
        }
    raise AssertionError(f"the fake does not know {request.verb}")
