"""A goodbye that arrives with a confirmation: the producer goes on at the next connection."""

from __future__ import annotations

import asyncio

from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Connection as Machine
from sparrow.protocol.native.connection import Received, Role
from tests.client.frontends import client_of


class LeavingBroker:
    """Its first connection confirms one batch and says goodbye, in one write; later ones confirm
    all. The window has room for one batch.
    """

    def __init__(self) -> None:
        self.connections = 0
        self.confirmed = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        is_first, machine = self.connections == 1, Machine(Role.BROKER)
        while data := await reader.read(1 << 16):
            machine.receive_data(data)
            for event in machine.events():
                if type(event) is Received:
                    self._answer(machine, event, leaves=is_first)
            writer.writelines(machine.data_to_send())
        writer.close()

    def _answer(self, machine: Machine, event: Received, *, leaves: bool) -> None:
        head = event.head
        if isinstance(head, m.Hello):
            machine.send(m.Welcome(1, "fake", "cluster", "connection", 16 << 20, 256, 0))
        elif isinstance(head, m.Request):
            machine.send(m.Response(head.ref, None, {"partition_count": 5}))
        elif isinstance(head, m.OpenProducer):
            machine.send(m.ProducerOpened(7, 0, 1), event.channel)
        elif isinstance(head, m.Publish):
            machine.send(m.Confirm([m.Confirmation(head.ref, self.confirmed)]), event.channel)
            self.confirmed += 1
            if leaves:
                machine.send(m.Goodbye("DRAINING"))
        elif isinstance(head, m.Close):
            machine.send(m.Closed(), event.channel)
        elif isinstance(head, m.Goodbye) and not leaves:
            machine.send(m.Goodbye())


async def test_a_batch_that_waits_for_the_window_is_sent_on_the_next_connection() -> None:
    broker = LeavingBroker()
    server = await asyncio.start_server(broker.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with client_of(f"sparrow://127.0.0.1:{port}") as client, client.producer(linger_ms=0) as producer:
        deliveries = [await producer.send("t", b"%d" % number, partition=number) for number in range(5)]
        placed = await asyncio.wait_for(asyncio.gather(*deliveries), 30)
    assert sorted(each.offset for each in placed) == [0, 1, 2, 3, 4]
    assert broker.connections == 2
    server.close()
    await server.wait_closed()
