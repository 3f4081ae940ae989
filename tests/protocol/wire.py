"""Two connections face to face, and a sample of every payload."""

from __future__ import annotations

import itertools

import msgspec

from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Connection, Role
from sparrow.protocol.native.frames import encode_frame

PRODUCER = 1
SUBSCRIPTION = 2
QUEUE = 3

SAMPLES: dict[m.FrameType, m.Head] = {
    m.FrameType.HELLO: m.Hello("sparrow", 1, 1, "test", "0.1", {"token": "t"}),
    m.FrameType.WELCOME: m.Welcome(1, "0.1", "cluster", "session", 16 << 20, 256, 60_000),
    m.FrameType.PING: m.Ping(7),
    m.FrameType.PONG: m.Pong(7),
    m.FrameType.GOODBYE: m.Goodbye("DONE", "bye"),
    m.FrameType.ERROR: m.Error("OVERLOADED", "too much", True),
    m.FrameType.REQUEST: m.Request(
        1, "topic.create", {"name": "orders", "partitions": 3, "config": {"a": "b"}}
    ),
    m.FrameType.RESPONSE: m.Response(1, None, {"name": "orders", "partitions": [{"partition": 0}]}),
    m.FrameType.OPEN_PRODUCER: m.OpenProducer(True, 7, 0),
    m.FrameType.PRODUCER_OPENED: m.ProducerOpened(7, 0, 8 << 20),
    m.FrameType.PUBLISH: m.Publish(1, "orders", 0, -1),
    m.FrameType.CONFIRM: m.Confirm(
        [m.Confirmation(1, 42), m.Confirmation(2, -1, -1, m.Failure("X", "y", True))]
    ),
    m.FrameType.SUBSCRIBE: m.Subscribe(
        [m.Selector("orders"), m.Selector("audit.*", True, m.Start("offset", 5), {0: 9})],
        True,
        1 << 20,
        group="g",
    ),
    m.FrameType.SUBSCRIBED: m.Subscribed("member", 3),
    m.FrameType.CREDIT: m.Credit(65536),
    m.FrameType.PULL: m.Pull(4, 100, 1 << 20, 250),
    m.FrameType.PULLED: m.Pulled(4, 10, 2000),
    m.FrameType.DELIVER: m.Deliver("orders", 0, 5, 9, 12, -1),
    m.FrameType.UPDATE: m.Update(5, [m.Selector("more.*", True)], ["orders"]),
    m.FrameType.ASSIGNED: m.Assigned(3, [m.PartitionAt("orders", 0, 42)]),
    m.FrameType.REVOKE: m.Revoke(4, [("orders", 0)], "DROPPED"),
    m.FrameType.REVOKED: m.Revoked(4, [("orders", 0)]),
    m.FrameType.COMMIT: m.Commit(6, [m.OffsetCommit("orders", 0, 43, "note")]),
    m.FrameType.CLOSE: m.Close(),
    m.FrameType.CLOSED: m.Closed(),
    m.FrameType.OPEN_QUEUE: m.OpenQueue("emails", "worker-1", "audit", 100, True, 50, 1 << 16, True),
    m.FrameType.QUEUE_OPENED: m.QueueOpened("worker-1", 30_000, 100, "audit"),
    m.FrameType.LEASE: m.Lease(7, 100, 1 << 20, 250),
    m.FrameType.LEASED: m.Leased(-1, "emails", 0, 29_990, [(5, 9, 1), (12, 12, 3)]),
    m.FrameType.LEASE_DONE: m.LeaseDone(7, 6),
    m.FrameType.SETTLE: m.Settle(
        8,
        [
            m.Settlement(m.SettleVerb.ACK, "emails", 0, [(5, 7), (9, 9)]),
            m.Settlement(m.SettleVerb.NACK, "emails", 0, [(8, 8)], 500, "smtp: 451"),
        ],
    ),
    m.FrameType.SETTLED: m.Settled(8, [m.SettleFailure(1, 0, "LEASE_EXPIRED", "too late")]),
    m.FrameType.QUEUE_CREDIT: m.QueueCredit(20),
    m.FrameType.FETCH: m.Fetch(9, "orders", "0188d3b8", 0, 17, 1 << 20, "read_committed", 500),
    m.FrameType.FETCHED: m.Fetched(9, None, 42, 5, 50, 45, [(7, 20), (8, 30)]),
}

_encode = msgspec.msgpack.encode


def raw(head: m.Head, channel: int = 0, batches: bytes | None = None) -> bytes:
    """Return a frame as bytes, legal or not."""
    kind = m.TYPE_OF[type(head)]
    if kind in m.CARRIES_BATCHES and batches is None:
        batches = b"batch"
    return b"".join(
        bytes(p) for p in encode_frame(kind, channel, _encode(m.written_fields(head)), batches, 1 << 32)
    )


def sent_by(connection: Connection) -> bytes:
    return b"".join(bytes(piece) for piece in connection.data_to_send())


def exchange(client: Connection, broker: Connection) -> None:
    """Carry bytes until there are none."""
    while True:
        to_broker, to_client = sent_by(client), sent_by(broker)
        if not to_broker and not to_client:
            return
        broker.receive_data(to_broker)
        client.receive_data(to_client)


def greeted(**limits: int) -> tuple[Connection, Connection]:
    """Return client and broker, both OPEN."""
    client, broker = Connection(Role.CLIENT), Connection(Role.BROKER, **limits)
    client.send(m.Hello("sparrow", 1, 1))
    exchange(client, broker)
    broker.send(
        m.Welcome(1, "0.1", "cluster", "session", broker.max_frame_bytes, broker.max_channels, 60_000)
    )
    exchange(client, broker)
    return client, broker


def with_channels(**limits: int) -> tuple[Connection, Connection]:
    """Return client and broker with a producer (1), a subscription (2) and a queue (3) open; no
    events waiting.
    """
    client, broker = greeted(**limits)
    client.send(m.OpenProducer(), PRODUCER)
    client.send(m.Subscribe([m.Selector("orders")]), SUBSCRIPTION)
    client.send(m.OpenQueue("emails"), QUEUE)
    exchange(client, broker)
    broker.send(m.ProducerOpened(7, 0, 8 << 20), PRODUCER)
    broker.send(m.Subscribed(), SUBSCRIPTION)
    broker.send(m.QueueOpened("worker-1", 30_000), QUEUE)
    exchange(client, broker)
    client.events()
    broker.events()
    return client, broker


def split_at(data: bytes, cuts: list[int]) -> list[bytes]:
    """Return `data` in pieces."""
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]
