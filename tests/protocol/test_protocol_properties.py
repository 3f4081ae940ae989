"""Properties: any split of the bytes gives the same events; garbage leads to a violation and raises
nothing.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Connection, Event, Received, Role, State, Violation
from sparrow.protocol.native.frames import encode_frame
from tests.protocol.wire import PRODUCER, QUEUE, SAMPLES, SUBSCRIPTION, raw, sent_by, split_at, with_channels

_int = st.integers(-(2**63), 2**63 - 1)
_offset = st.integers(-1, 2**63 - 1)
_text = st.text(max_size=20)
_failure = st.none() | st.builds(m.Failure, _text, _text, st.booleans())
_selector = st.builds(
    m.Selector,
    _text,
    st.booleans(),
    st.builds(m.Start, _text, _int),
    st.dictionaries(st.integers(0, 99), _offset, max_size=3),
)
_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _int | _text | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=6,
)
_partitions = st.lists(st.tuples(_text, _int), max_size=3)
_settlement = st.builds(
    m.Settlement, _int, _text, _int, st.lists(st.tuples(_int, _int), max_size=4), _int, _text
)

HEADS: dict[type[m.Head], st.SearchStrategy[m.Head]] = {
    m.Hello: st.builds(m.Hello, _text, _int, _int, _text, _text, st.dictionaries(_text, _text, max_size=3)),
    m.Welcome: st.builds(m.Welcome, _int, _text, _text, _text, _int, _int, _int),
    m.Ping: st.builds(m.Ping, _int),
    m.Pong: st.builds(m.Pong, _int),
    m.Goodbye: st.builds(m.Goodbye, _text, _text),
    m.Error: st.builds(m.Error, _text, _text, st.booleans()),
    m.Request: st.builds(m.Request, _int, _text, st.dictionaries(_text, _json, max_size=3)),
    m.Response: st.builds(m.Response, _int, _failure, _json),
    m.OpenProducer: st.builds(m.OpenProducer, st.booleans(), _int, _int, _text),
    m.ProducerOpened: st.builds(m.ProducerOpened, _int, _int, _int),
    m.Publish: st.builds(m.Publish, _int, _text, _int, _int),
    m.Confirm: st.builds(
        m.Confirm, st.lists(st.builds(m.Confirmation, _int, _int, _int, _failure), max_size=4)
    ),
    m.Subscribe: st.builds(
        m.Subscribe,
        st.lists(_selector, max_size=3),
        st.booleans(),
        *[_int, _int, _text, _text, _int, _int, _text],
    ),
    m.Subscribed: st.builds(m.Subscribed, _text, _int),
    m.Credit: st.builds(m.Credit, _int),
    m.Pull: st.builds(m.Pull, _int, _int, _int, _int),
    m.Pulled: st.builds(m.Pulled, _int, _int, _int),
    m.Deliver: st.builds(m.Deliver, _text, _int, _int, _int, _int, _int),
    m.Update: st.builds(m.Update, _int, st.lists(_selector, max_size=2), st.lists(_text, max_size=2)),
    m.Assigned: st.builds(
        m.Assigned, _int, st.lists(st.builds(m.PartitionAt, _text, _int, _int), max_size=3)
    ),
    m.Revoke: st.builds(m.Revoke, _int, _partitions, _text),
    m.Revoked: st.builds(m.Revoked, _int, _partitions),
    m.Commit: st.builds(
        m.Commit, _int, st.lists(st.builds(m.OffsetCommit, _text, _int, _int, _text), max_size=3)
    ),
    m.Close: st.just(m.Close()),
    m.Closed: st.just(m.Closed()),
    m.OpenQueue: st.builds(m.OpenQueue, _text, _text, _text, _int, st.booleans(), _int, _int, st.booleans()),
    m.QueueOpened: st.builds(m.QueueOpened, _text, _int, _int, _text),
    m.Lease: st.builds(m.Lease, _int, _int, _int, _int),
    m.Leased: st.builds(m.Leased, _int, _text, _int, _int, st.lists(st.tuples(_int, _int, _int), max_size=4)),
    m.LeaseDone: st.builds(m.LeaseDone, _int, _int),
    m.Settle: st.builds(m.Settle, _int, st.lists(_settlement, max_size=3)),
    m.Settled: st.builds(
        m.Settled,
        _int,
        st.lists(st.builds(m.SettleFailure, _int, _int, _text, _text, st.booleans()), max_size=3),
    ),
    m.QueueCredit: st.builds(m.QueueCredit, _int),
    m.Fetch: st.builds(m.Fetch, _int, _text, _text, _int, _int, _int, _text, _int),
    m.Fetched: st.builds(
        m.Fetched, _int, _failure, _int, _int, _int, _int, st.lists(st.tuples(_int, _int), max_size=4)
    ),
}


def test_every_head_has_a_sample_and_a_strategy() -> None:
    assert set(HEADS) == set(m.TYPE_OF)
    assert set(SAMPLES) == set(m.FrameType)


@given(st.one_of(*HEADS.values()))
def test_every_head_round_trips(head: m.Head) -> None:
    data = msgspec.msgpack.encode(head)
    assert msgspec.msgpack.decode(data, type=type(head)) == head
    assert data[0] >> 4 == 0x9 or data[0] in (0xDC, 0xDD)  # an array


def _on(number: int, *heads: type[m.Head]) -> list[st.SearchStrategy[bytes]]:
    return [st.builds(raw, HEADS[head], st.just(number), st.none()) for head in heads]


_batches = st.binary(max_size=5000)
_to_broker = st.one_of(
    *_on(0, m.Ping, m.Pong, m.Request, m.Fetch),
    *_on(SUBSCRIPTION, m.Credit, m.Pull, m.Update, m.Revoked, m.Commit),
    *_on(QUEUE, m.Lease, m.Settle, m.QueueCredit),
    st.builds(raw, HEADS[m.Publish], st.just(PRODUCER), _batches),
    st.builds(raw, HEADS[m.Subscribe], st.integers(5, 300)),
    st.builds(raw, HEADS[m.OpenQueue], st.integers(5, 300)),
    st.builds(raw, st.just(m.Close()), st.integers(1, 3)),
    st.binary(max_size=30),
)
_to_client = st.one_of(
    *_on(0, m.Ping, m.Pong, m.Response, m.Goodbye),
    *_on(SUBSCRIPTION, m.Pulled, m.Assigned, m.Revoke, m.Response),
    *_on(QUEUE, m.LeaseDone, m.Settled),
    st.builds(raw, HEADS[m.Confirm], st.just(PRODUCER)),
    st.builds(raw, HEADS[m.Deliver], st.just(SUBSCRIPTION), _batches),
    st.builds(raw, HEADS[m.Leased], st.just(QUEUE), _batches),
    st.builds(raw, HEADS[m.Fetched], st.just(0), _batches),
    st.builds(raw, HEADS[m.Error], st.integers(0, 3)),
    st.binary(max_size=30),
)
_cuts = st.lists(st.integers(0, 1 << 16), max_size=20)


def _comparable(event: Event) -> object:
    if isinstance(event, Received):
        return event.channel, event.head, None if event.batches is None else bytes(event.batches)
    return str(event.error)


def _fed(role: Role, chunks: list[bytes]) -> tuple[list[object], bytes, State, int]:
    client, broker = with_channels()
    side = client if role is Role.CLIENT else broker
    events: list[object] = []
    out = b""
    for chunk in chunks:
        side.receive_data(chunk)
        events += map(_comparable, side.events())
        out += sent_by(side)
    return events, out, side.state, side.buffered_bytes if side.state is not State.CLOSED else 0


@pytest.mark.slow
@given(st.lists(_to_broker, max_size=8).map(b"".join), _cuts)
@example(raw(m.Ping(1)) + b"\xff" * 20, [18, 19, 20])
def test_any_split_gives_the_broker_the_same_events(data: bytes, cuts: list[int]) -> None:
    assert _fed(Role.BROKER, split_at(data, cuts)) == _fed(Role.BROKER, [data])


@pytest.mark.slow
@given(st.lists(_to_client, max_size=8).map(b"".join), _cuts)
def test_any_split_gives_the_client_the_same_events(data: bytes, cuts: list[int]) -> None:
    assert _fed(Role.CLIENT, split_at(data, cuts)) == _fed(Role.CLIENT, [data])


@given(st.builds(raw, HEADS[m.Hello]), _cuts)
def test_any_split_of_a_hello_gives_the_same_event(data: bytes, cuts: list[int]) -> None:
    def fed(chunks: list[bytes]) -> tuple[list[object], bytes]:
        broker = Connection(Role.BROKER)
        for chunk in chunks:
            broker.receive_data(chunk)
        return [_comparable(e) for e in broker.events()], sent_by(broker)

    assert fed(split_at(data, cuts)) == fed([data])


def _checked(side: Connection, data: bytes) -> None:
    """Check that nothing raises, and that an ended connection says why, once, to both."""
    side.receive_data(data)
    events = side.events()
    violations = [e for e in events if isinstance(e, Violation)]
    assert len(violations) <= 1
    if violations:
        assert events[-1] is violations[0]
        assert side.state is State.CLOSED
        assert violations[0].error.code.encode() in sent_by(side)
    side.receive_eof()
    assert side.state is State.CLOSED


@pytest.mark.parametrize("role", Role)
@given(data=st.binary(max_size=200))
def test_garbage_raises_nothing(role: Role, data: bytes) -> None:
    _checked(Connection(role), data)
    client, broker = with_channels()
    _checked(client if role is Role.CLIENT else broker, data)


@pytest.mark.parametrize("role", Role)
@given(
    kind=st.sampled_from(m.FrameType),
    flags=st.integers(0, 3),
    channel=st.integers(0, 5),
    payload=st.binary(max_size=120) | _json.map(msgspec.msgpack.encode),
)
def test_garbage_in_a_well_formed_frame_raises_nothing(
    role: Role, kind: m.FrameType, flags: int, channel: int, payload: bytes
) -> None:
    client, broker = with_channels()
    frame = bytearray(encode_frame(kind, channel, payload, None, 1 << 20)[0])
    frame[5] = flags
    _checked(client if role is Role.CLIENT else broker, bytes(frame))


@pytest.mark.slow
@pytest.mark.parametrize("role", Role)
@given(data=st.data())
def test_a_damaged_frame_raises_nothing(role: Role, data: st.DataObject) -> None:
    client, broker = with_channels()
    side, frames = (client, _to_client) if role is Role.CLIENT else (broker, _to_broker)
    frame = bytearray(data.draw(frames.filter(bool)))
    for at in data.draw(st.lists(st.integers(0, len(frame) - 1), max_size=4)):
        frame[at] = data.draw(st.integers(0, 255))
    _checked(side, bytes(frame))


def test_a_deeply_nested_argument_is_a_violation() -> None:
    _, broker = with_channels()
    payload = b"\x93\x01\xa1x\x81\xa1a" + b"\x91" * 100_000 + b"\xc0"
    broker.receive_data(encode_frame(0x10, 0, payload, None, 1 << 20)[0])  # type: ignore[arg-type]
    (event,) = broker.events()
    assert isinstance(event, Violation)
