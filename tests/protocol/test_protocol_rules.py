"""The rules of sending, against a table written from docs/protocol.md: every type in every state,
both roles.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from sparrow.base.errors import (
    BadFrame,
    ConnectionLost,
    FrameTooLarge,
    InternalError,
    UnsupportedVersion,
)
from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import (
    ChannelState,
    Connection,
    Ended,
    Received,
    Role,
    State,
    Violation,
)
from sparrow.protocol.native.messages import FrameType
from tests.protocol.wire import (
    PRODUCER,
    QUEUE,
    SAMPLES,
    SUBSCRIPTION,
    exchange,
    greeted,
    raw,
    sent_by,
    with_channels,
)

Pair = tuple[Connection, Connection]
FREE = 9
CONTROL = 0


def _fresh() -> Pair:
    return Connection(Role.CLIENT), Connection(Role.BROKER)


def _hello_sent() -> Pair:
    client, broker = _fresh()
    client.send(m.Hello("sparrow", 1, 1))
    exchange(client, broker)
    return client, broker


def _opening() -> Pair:
    client, broker = greeted()
    client.send(m.OpenProducer(), PRODUCER)
    client.send(m.Subscribe([]), SUBSCRIPTION)
    client.send(m.OpenQueue("emails"), QUEUE)
    exchange(client, broker)
    return client, broker


def _closing_channels() -> Pair:
    client, broker = with_channels()
    client.send(m.Close(), PRODUCER)
    client.send(m.Close(), SUBSCRIPTION)
    client.send(m.Close(), QUEUE)
    exchange(client, broker)
    return client, broker


def _goodbye_of(role: Role) -> Callable[[], Pair]:
    def make() -> Pair:
        client, broker = with_channels()
        (client if role is Role.CLIENT else broker).send(m.Goodbye())
        exchange(client, broker)
        return client, broker

    return make


# Types that the sender may send: (sender, situation, channel) → types. Every other type is a
# violation.
LEGAL: dict[tuple[Role, str, int], str] = {
    (Role.CLIENT, "fresh", CONTROL): "HELLO ERROR",
    (Role.CLIENT, "hello sent", CONTROL): "ERROR",
    (Role.CLIENT, "open", CONTROL): "PING PONG GOODBYE ERROR REQUEST FETCH",
    (Role.CLIENT, "open", FREE): "OPEN_PRODUCER SUBSCRIBE OPEN_QUEUE",
    (Role.CLIENT, "open", PRODUCER): "PUBLISH CLOSE",
    (Role.CLIENT, "open", SUBSCRIPTION): "CREDIT PULL UPDATE REVOKED COMMIT CLOSE",
    (Role.CLIENT, "open", QUEUE): "LEASE SETTLE QUEUE_CREDIT CLOSE",
    (Role.CLIENT, "opening", CONTROL): "PING PONG GOODBYE ERROR REQUEST FETCH",
    (Role.CLIENT, "opening", FREE): "OPEN_PRODUCER SUBSCRIBE OPEN_QUEUE",
    (Role.CLIENT, "opening", PRODUCER): "CLOSE",
    (Role.CLIENT, "opening", SUBSCRIPTION): "CLOSE",
    (Role.CLIENT, "opening", QUEUE): "CLOSE",
    (Role.CLIENT, "closing channels", CONTROL): "PING PONG GOODBYE ERROR REQUEST FETCH",
    (Role.CLIENT, "closing channels", FREE): "OPEN_PRODUCER SUBSCRIBE OPEN_QUEUE",
    (Role.CLIENT, "client said goodbye", CONTROL): "PING PONG ERROR",
    (Role.CLIENT, "broker said goodbye", CONTROL): "PING PONG GOODBYE ERROR REQUEST FETCH",
    (Role.CLIENT, "broker said goodbye", FREE): "OPEN_PRODUCER SUBSCRIBE OPEN_QUEUE",
    (Role.CLIENT, "broker said goodbye", PRODUCER): "PUBLISH CLOSE",
    (Role.CLIENT, "broker said goodbye", SUBSCRIPTION): "CREDIT PULL UPDATE REVOKED COMMIT CLOSE",
    (Role.CLIENT, "broker said goodbye", QUEUE): "LEASE SETTLE QUEUE_CREDIT CLOSE",
    (Role.BROKER, "fresh", CONTROL): "ERROR GOODBYE",
    (Role.BROKER, "hello sent", CONTROL): "WELCOME ERROR GOODBYE",
    (Role.BROKER, "open", CONTROL): "PING PONG GOODBYE ERROR RESPONSE FETCHED",
    (Role.BROKER, "open", PRODUCER): "CONFIRM ERROR",
    (Role.BROKER, "open", SUBSCRIPTION): "PULLED DELIVER ASSIGNED REVOKE RESPONSE ERROR",
    (Role.BROKER, "open", QUEUE): "LEASED LEASE_DONE SETTLED ERROR",
    (Role.BROKER, "opening", CONTROL): "PING PONG GOODBYE ERROR RESPONSE FETCHED",
    (Role.BROKER, "opening", PRODUCER): "PRODUCER_OPENED ERROR",
    (Role.BROKER, "opening", SUBSCRIPTION): "SUBSCRIBED ERROR",
    (Role.BROKER, "opening", QUEUE): "QUEUE_OPENED ERROR",
    (Role.BROKER, "closing channels", CONTROL): "PING PONG GOODBYE ERROR RESPONSE FETCHED",
    (Role.BROKER, "closing channels", PRODUCER): "PRODUCER_OPENED CONFIRM ERROR CLOSED",
    (Role.BROKER, "closing channels", SUBSCRIPTION): (
        "SUBSCRIBED PULLED DELIVER ASSIGNED REVOKE RESPONSE ERROR CLOSED"
    ),
    (Role.BROKER, "closing channels", QUEUE): "QUEUE_OPENED LEASED LEASE_DONE SETTLED ERROR CLOSED",
    (Role.BROKER, "client said goodbye", CONTROL): "PING PONG GOODBYE ERROR RESPONSE FETCHED",
    (Role.BROKER, "client said goodbye", PRODUCER): "CONFIRM ERROR",
    (Role.BROKER, "client said goodbye", SUBSCRIPTION): "PULLED DELIVER ASSIGNED REVOKE RESPONSE ERROR",
    (Role.BROKER, "client said goodbye", QUEUE): "LEASED LEASE_DONE SETTLED ERROR",
    (Role.BROKER, "broker said goodbye", CONTROL): "PING PONG ERROR RESPONSE FETCHED",
    (Role.BROKER, "broker said goodbye", PRODUCER): "CONFIRM ERROR",
    (Role.BROKER, "broker said goodbye", SUBSCRIPTION): "PULLED DELIVER ASSIGNED REVOKE RESPONSE ERROR",
    (Role.BROKER, "broker said goodbye", QUEUE): "LEASED LEASE_DONE SETTLED ERROR",
}
# Rules that bind the sender alone, because the frame may have been under way: the receiver takes
# it.
SENDER_ONLY = {
    (Role.CLIENT, "broker said goodbye", FREE): "OPEN_PRODUCER SUBSCRIBE OPEN_QUEUE",
    (Role.CLIENT, "broker said goodbye", PRODUCER): "PUBLISH",
}
SITUATIONS: dict[str, Callable[[], Pair]] = {
    "fresh": _fresh,
    "hello sent": _hello_sent,
    "open": with_channels,
    "opening": _opening,
    "closing channels": _closing_channels,
    "client said goodbye": _goodbye_of(Role.CLIENT),
    "broker said goodbye": _goodbye_of(Role.BROKER),
}
CASES = [
    (sender, situation, channel)
    for sender in Role
    for situation in SITUATIONS
    for channel in (CONTROL, PRODUCER, SUBSCRIPTION, QUEUE, FREE)
]


def _sides(situation: str, sender: Role) -> Pair:
    client, broker = SITUATIONS[situation]()
    client.events(), broker.events()
    return (client, broker) if sender is Role.CLIENT else (broker, client)


@pytest.mark.parametrize(("sender", "situation", "channel"), CASES)
def test_a_frame_is_taken_exactly_where_it_is_legal(sender: Role, situation: str, channel: int) -> None:
    legal = LEGAL.get((sender, situation, channel), "").split()
    for kind in FrameType:
        _, receiver = _sides(situation, sender)
        receiver.receive_data(raw(SAMPLES[kind], channel))
        events = receiver.events()
        if kind.name not in legal:
            (event,) = events
            assert isinstance(event, Violation), kind
            assert isinstance(event.error, BadFrame)
            assert receiver.state is State.CLOSED
            assert b"BAD_FRAME" in sent_by(receiver)
        elif kind is FrameType.PING:
            assert events == []
            assert sent_by(receiver) == raw(m.Pong(7))
        else:
            (event,) = events
            assert isinstance(event, Received), kind
            assert event.head == SAMPLES[kind]
            assert event.batches == (b"batch" if kind in m.CARRIES_BATCHES else None)


@pytest.mark.parametrize(("sender", "situation", "channel"), CASES)
def test_sending_is_refused_locally_exactly_where_it_is_illegal(
    sender: Role, situation: str, channel: int
) -> None:
    legal = set(LEGAL.get((sender, situation, channel), "").split())
    legal -= set(SENDER_ONLY.get((sender, situation, channel), "").split())
    for kind in FrameType:
        side, _ = _sides(situation, sender)
        head = SAMPLES[kind]
        batches = b"batch" if kind in m.CARRIES_BATCHES else None
        assert side.may_send(type(head), channel) == (kind.name in legal), kind
        if kind.name in legal:
            side.send(head, channel, batches)
            assert sent_by(side) == raw(head, channel)
        else:
            with pytest.raises(InternalError):
                side.send(head, channel, batches)
            assert side.data_to_send() == []


@pytest.mark.parametrize("role", Role)
def test_unknown_types_are_violations_that_name_the_type(role: Role) -> None:
    known = {int(kind) for kind in FrameType}
    for kind in set(range(256)) - known:
        client, broker = with_channels()
        side = client if role is Role.CLIENT else broker
        side.receive_data(bytes([0, 0, 0, 7, kind, 0, 0, 0, 0, 0, 0x90]))
        (event,) = side.events()
        assert isinstance(event, Violation)
        assert f"0x{kind:02x}" in event.error.text


@pytest.mark.parametrize("flags", [1, 2, 0x80, 3])
def test_flags_that_a_type_must_not_have_are_violations(flags: int) -> None:
    _, broker = with_channels()
    frame = bytearray(raw(m.Ping(1)))
    frame[5] = flags
    broker.receive_data(bytes(frame))
    (event,) = broker.events()
    assert isinstance(event, Violation)
    assert "flags" in event.error.text


def test_publish_without_batches_is_a_violation() -> None:
    _, broker = with_channels()
    frame = bytearray(raw(SAMPLES[FrameType.PUBLISH], PRODUCER))
    frame[5] = 0
    broker.receive_data(bytes(frame))
    assert isinstance(broker.events()[0], Violation)


def test_batches_are_sent_with_publish_deliver_and_leased_and_nothing_else() -> None:
    client, broker = with_channels()
    with pytest.raises(InternalError, match="without batches"):
        client.send(m.Publish(1, "orders", 0), PRODUCER)
    with pytest.raises(InternalError, match="without batches"):
        broker.send(SAMPLES[FrameType.LEASED], QUEUE)
    with pytest.raises(InternalError, match="with batches"):
        client.send(m.Ping(1), 0, b"batch")
    assert client.data_to_send() == []


def test_a_head_that_does_not_decode_is_a_violation_that_names_it() -> None:
    _, broker = with_channels()
    broker.receive_data(bytes([0, 0, 0, 8, 0x32, 0, 0, 0, 0, SUBSCRIPTION, 0x91, 0xA0]))
    (event,) = broker.events()
    assert isinstance(event, Violation)
    assert "CREDIT on channel 2" in event.error.text


def test_trailing_fields_of_a_newer_peer_are_ignored() -> None:
    _, broker = with_channels()
    broker.receive_data(bytes([0, 0, 0, 9, 0x32, 0, 0, 0, 0, SUBSCRIPTION, 0x92, 5, 0xC0]))
    assert broker.events() == [Received(SUBSCRIPTION, m.Credit(5))]


def test_missing_trailing_fields_have_their_defaults() -> None:
    _, broker = greeted()
    broker.events()
    broker.receive_data(bytes([0, 0, 0, 7, 0x20, 0, 0, 0, 0, 5, 0x90]))
    assert broker.events() == [Received(5, m.OpenProducer())]


# ── limits of a type ──────────────────────────────────────────────────────────────────────────────


def _settle_of(size_bytes: int) -> m.Settle:
    return m.Settle(1, [m.Settlement(m.SettleVerb.NACK, "emails", 0, [(0, 0)], -1, "x" * size_bytes)])


def test_a_settle_has_at_most_256_kib_in_both_directions() -> None:
    client, broker = with_channels()
    small, large = _settle_of(250_000), _settle_of(256 << 10)
    client.send(small, QUEUE)
    exchange(client, broker)
    assert broker.events() == [Received(QUEUE, small)]
    with pytest.raises(FrameTooLarge, match=r"SETTLE has 262.*send several"):
        client.send(large, QUEUE)
    assert client.data_to_send() == []
    broker.receive_data(raw(large, QUEUE))
    (event,) = broker.events()
    assert isinstance(event, Violation)
    assert isinstance(event.error, FrameTooLarge)


# ── hello ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("low", "high", "chosen"), [(1, 1, 1), (1, 9, 1), (0, 1, 1)])
def test_the_highest_common_version_is_chosen(low: int, high: int, chosen: int) -> None:
    client, broker = _fresh()
    client.send(m.Hello("sparrow", low, high))
    exchange(client, broker)
    assert broker.version == chosen
    assert broker.state is State.AWAIT_WELCOME


@pytest.mark.parametrize(("low", "high"), [(2, 9), (0, 0), (5, 1)])
def test_no_common_version_is_reported_with_the_brokers_range(low: int, high: int) -> None:
    _, broker = _fresh()
    broker.receive_data(raw(m.Hello("sparrow", low, high)))
    (event,) = broker.events()
    assert isinstance(event, Violation)
    assert isinstance(event.error, UnsupportedVersion)
    assert "1 to 1" in event.error.text


def test_another_protocols_hello_is_refused() -> None:
    _, broker = _fresh()
    broker.receive_data(raw(m.Hello("msbq", 1, 1)))
    assert "'msbq'" in broker.events()[0].error.text  # type: ignore[union-attr]


def test_a_version_that_was_not_offered_ends_the_client() -> None:
    client, _ = _hello_sent()
    client.receive_data(raw(m.Welcome(2, "0.1", "c", "s", 1 << 20, 10, 0)))
    (event,) = client.events()
    assert isinstance(event, Violation)
    assert isinstance(event.error, UnsupportedVersion)


def test_the_limits_of_welcome_hold_for_the_client_from_the_next_frame_on() -> None:
    client, broker = _hello_sent()
    broker.send(m.Welcome(1, "0.1", "c", "s", 300_000, 1, 0))
    welcome = sent_by(broker)
    broker.send(m.Response(1, None, bytes(200_000)))
    client.receive_data(welcome + sent_by(broker))
    assert len(client.events()) == 2
    assert client.max_frame_bytes == 300_000
    with pytest.raises(FrameTooLarge, match="REQUEST cannot be sent"):
        client.send(m.Request(1, "x", {"a": bytes(300_000)}))
    client.send(m.OpenProducer(), 1)
    with pytest.raises(InternalError, match="1 are open"):
        client.send(m.OpenProducer(), 2)


def test_before_welcome_a_frame_has_at_most_64_kib() -> None:
    _, broker = _fresh()
    broker.receive_data(raw(m.Hello("sparrow", 1, 1, "n" * 70_000)))
    (event,) = broker.events()
    assert isinstance(event, Violation)
    assert isinstance(event.error, FrameTooLarge)


def test_an_http_request_is_refused_with_the_ports_protocol() -> None:
    _, broker = _fresh()
    broker.receive_data(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert "HTTP" in broker.events()[0].error.text  # type: ignore[union-attr]
    assert b"sparrow://" in sent_by(broker)


# ── channels ──────────────────────────────────────────────────────────────────────────────────────


def test_a_closed_channel_is_free_again_on_both_sides() -> None:
    client, broker = with_channels()
    client.send(m.Close(), PRODUCER)
    exchange(client, broker)
    assert client.channel_state(PRODUCER) is broker.channel_state(PRODUCER) is ChannelState.CLOSING
    broker.send(m.Closed(), PRODUCER)
    exchange(client, broker)
    assert client.channel_state(PRODUCER) is broker.channel_state(PRODUCER) is None
    client.send(m.Subscribe([]), PRODUCER)
    exchange(client, broker)
    assert broker.channel_state(PRODUCER) is ChannelState.OPENING


def test_frames_that_cross_the_end_of_their_channel_are_ignored() -> None:
    client, broker = with_channels()
    client.send(m.Publish(1, "orders", 0), PRODUCER, b"batch")
    client.send(m.Close(), PRODUCER)
    broker.send(m.Error("PRODUCER_FENCED", "fenced"), PRODUCER)
    exchange(client, broker)
    assert broker.events() == []
    assert client.events() == [Received(PRODUCER, m.Error("PRODUCER_FENCED", "fenced"))]
    assert broker.state is client.state is State.OPEN
    assert client.channel_state(PRODUCER) is None


def test_a_number_that_the_broker_ended_can_be_opened_again() -> None:
    client, broker = with_channels()
    broker.send(m.Error("X", "x"), PRODUCER)
    exchange(client, broker)
    client.send(m.OpenProducer(), PRODUCER)
    exchange(client, broker)
    assert broker.events() == [Received(PRODUCER, m.OpenProducer())]
    broker.send(m.ProducerOpened(7, 0, 1), PRODUCER)
    client.receive_data(sent_by(broker))
    client.send(m.Close(), PRODUCER)
    exchange(client, broker)
    broker.send(m.Closed(), PRODUCER)
    exchange(client, broker)
    # It was closed in peace: no frame can be under way any more.
    broker.receive_data(raw(m.Publish(1, "orders", 0), PRODUCER))
    assert isinstance(broker.events()[-1], Violation)


def test_all_channels_ended_at_once_are_remembered_and_no_more() -> None:
    client, broker = greeted(max_channels=4)
    for number in range(1, 5):
        client.send(m.OpenProducer(), number)
    exchange(client, broker)
    for number in range(1, 5):
        broker.send(m.ProducerOpened(number, 0, 1), number)
    exchange(client, broker)
    for number in range(1, 5):
        client.send(m.Publish(1, "orders", 0), number, b"batch")
        broker.send(m.Error("X", "x"), number)
    broker.events()
    exchange(client, broker)
    assert broker.events() == []
    assert len(broker._ended) == 4
    for number in range(5, 9):
        client.send(m.OpenProducer(), number)
        exchange(client, broker)
        broker.send(m.Error("X", "x"), number)
        exchange(client, broker)
    assert sorted(broker._ended) == [5, 6, 7, 8]


def test_one_channel_too_many_is_refused_and_the_others_live() -> None:
    _, broker = with_channels(max_channels=3)
    broker.receive_data(raw(m.OpenProducer(), 4))
    assert broker.events() == []
    assert b"OVERLOADED" in sent_by(broker)
    assert broker.state is State.OPEN
    broker.receive_data(raw(m.Publish(1, "orders", 0), 4))
    broker.receive_data(raw(m.Publish(1, "orders", 0), PRODUCER))
    assert broker.events() == [Received(PRODUCER, m.Publish(1, "orders", 0), memoryview(b"batch"))]


@pytest.mark.parametrize("number", [0, -1, 1 << 32])
def test_channels_have_numbers_from_one_to_the_maximum(number: int) -> None:
    client, _ = greeted()
    with pytest.raises(InternalError):
        client.send(m.OpenProducer(), number)


# ── the end ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("first", Role)
def test_two_goodbyes_close_both_sides(first: Role) -> None:
    client, broker = with_channels()
    one, other = (client, broker) if first is Role.CLIENT else (broker, client)
    one.send(m.Goodbye())
    exchange(client, broker)
    assert client.state is broker.state is State.CLOSING
    assert one.goodbye_sent
    assert other.goodbye_received
    other.send(m.Goodbye())
    exchange(client, broker)
    assert client.state is broker.state is State.CLOSED


def test_confirmations_arrive_between_the_goodbyes() -> None:
    client, broker = with_channels()
    client.send(m.Publish(1, "orders", 0), PRODUCER, b"batch")
    client.send(m.Goodbye())
    exchange(client, broker)
    broker.send(m.Confirm([m.Confirmation(1, 0)]), PRODUCER)
    broker.send(m.Goodbye())
    exchange(client, broker)
    assert [type(e.head) for e in client.events()] == [m.Confirm, m.Goodbye]  # type: ignore[union-attr]


def test_goodbyes_that_cross_close_both_sides() -> None:
    client, broker = with_channels()
    client.send(m.Goodbye())
    broker.send(m.Goodbye())
    exchange(client, broker)
    assert client.state is broker.state is State.CLOSED


def test_an_error_on_channel_0_closes_both_sides() -> None:
    client, broker = with_channels()
    broker.send(m.Error("NOT_AUTHENTICATED", "who are you"))
    assert broker.state is State.CLOSED
    exchange(client, broker)
    assert client.state is State.CLOSED
    with pytest.raises(ConnectionLost):
        client.send(m.Ping(1))


def test_after_a_violation_nothing_more_is_read() -> None:
    _, broker = with_channels()
    broker.receive_data(
        raw(m.Credit(1), SUBSCRIPTION)
        + raw(m.Welcome(1, "", "", "", 1, 1, 1))
        + raw(m.Credit(2), SUBSCRIPTION)
    )
    assert [type(e) for e in broker.events()] == [Received, Violation]
    broker.receive_data(raw(m.Ping(1)))
    assert broker.events() == []


def test_eof_after_goodbye_is_a_clean_end() -> None:
    client, broker = with_channels()
    broker.send(m.Goodbye("DRAINING"))
    exchange(client, broker)
    client.events()
    client.receive_eof()
    assert client.events() == [Ended(None)]
    assert client.state is State.CLOSED


def test_eof_without_goodbye_is_a_lost_connection_reported_once() -> None:
    client, _ = with_channels()
    client.receive_eof()
    client.receive_eof()
    (event,) = client.events()
    assert isinstance(event, Ended)
    assert "without a goodbye" in str(event.error)


def test_eof_within_a_frame_says_how_much_was_there() -> None:
    _, broker = with_channels()
    broker.receive_data(raw(m.Publish(1, "orders", 0), PRODUCER, bytes(1000))[:500])
    broker.receive_eof()
    (event,) = broker.events()
    assert isinstance(event, Ended)
    assert "500 of 10" in str(event.error)


def test_a_ping_flood_is_answered_frame_by_frame_and_nothing_else_grows() -> None:
    _, broker = with_channels()
    broker.receive_data(raw(m.Ping(1)) * 1000)
    assert broker.events() == []
    assert sent_by(broker) == raw(m.Pong(1)) * 1000
