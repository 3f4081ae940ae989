"""Parts that need no broker: URLs, options, backoff, selection."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.base.errors import InvalidArgument, UnsupportedCompression
from sparrow.base.retry import Backoff
from sparrow.client.accumulator import TopicAccumulator
from sparrow.client.batch import ProducerBatch
from sparrow.client.message import checked_parts
from sparrow.client.options import ClientOptions, producer_options
from sparrow.client.partition_queue import MAX_IN_FLIGHT, PartitionQueue
from sparrow.client.selection import TopicSelection, matches
from sparrow.client.url import Address, parse_url
from sparrow.protocol.native.messages import Selector, Start

END = Start("end")
BEGINNING = Start("beginning")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("sparrow://127.0.0.1:9094", Address("127.0.0.1", 9094)),
        ("sparrow://broker", Address("broker", 9094)),
        ("sparrow://broker/", Address("broker", 9094)),
        ("broker:1234", Address("broker", 1234)),
        ("sparrow://[::1]:9094", Address("::1", 9094)),
        ("sparrow://:s%2Fcret@broker", Address("broker", 9094, "s/cret")),
        ("sparrow://ann:s%3Acret@broker", Address("broker", 9094, None, "ann", "s:cret")),
        ("sparrow://ann@broker", Address("broker", 9094, None, "ann", None)),
        ("sparrows://broker", Address("broker", 9094, has_tls=True)),
        ("a,b:1", Address("a", 9094, others=(("b", 1),))),
        (
            "sparrow://ann:s%3Acret@a:1,[::1]:2,c",
            Address("a", 1, None, "ann", "s:cret", others=(("::1", 2), ("c", 9094))),
        ),
        ("sparrows://ann:secret@broker:1", Address("broker", 1, None, "ann", "secret", has_tls=True)),
    ],
)
def test_url_names_host_port_and_user(url: str, address: Address) -> None:
    assert parse_url(url) == address
    assert "cret" not in repr(parse_url(url))


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("http://broker", "scheme is 'http'"),
        ("sparrow://", "no host"),
        ("", "no host"),
        ("sparrow://broker:0", "port is 0"),
        ("sparrow://broker:99999", "port is not a number"),
        ("sparrow://broker:abc", "port is not a number"),
        ("sparrow://broker/topic", "behind host and port"),
        ("sparrow://broker?x=1", "behind host and port"),
        ("sparrow://user:secret@", "no host"),
        ("sparrows://user:secret@broker/topic", "behind host and port"),
        ("sparrow://[::1", "Invalid IPv6"),
        ("sparrow://a,,b", "no host"),
        ("sparrow://user:secret@a,b:0", "port is 0"),
        ("sparrow://a,b:1/topic", "behind host and port"),
    ],
)
def test_a_url_that_is_none_is_refused_in_words(url: str, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as caught:
        parse_url(url)
    assert "secret" not in caught.value.text


@given(st.text(max_size=40))
def test_any_text_is_a_url_or_refused(text: str) -> None:
    try:
        parsed = parse_url(text)
    except InvalidArgument:
        return
    assert parsed.host
    assert 0 < parsed.port < 65536


def test_each_broker_of_a_url_has_the_same_login() -> None:
    first, second = parse_url("sparrows://ann:s%3Acret@a:1,b").brokers()
    assert first == Address("a", 1, None, "ann", "s:cret", has_tls=True)
    assert second == Address("b", 9094, None, "ann", "s:cret", has_tls=True)


def test_addresses_are_shown_as_they_are_written() -> None:
    assert (str(Address("::1", 1)), str(Address("h", 2))) == ("[::1]:1", "h:2")


@given(st.lists(st.floats(0, 1, exclude_max=True), max_size=200))
def test_delays_stay_below_a_ceiling_that_doubles_to_its_maximum(draws: list[float]) -> None:
    source = iter(draws)
    backoff = Backoff(0.05, 5.0, lambda: next(source))
    for number, draw in enumerate(draws):
        ceiling = min(5.0, 0.05 * 2 ** min(number, 60))
        assert backoff.ceiling_s == pytest.approx(ceiling)
        assert backoff.next_delay_s() == pytest.approx(draw * ceiling)
    backoff.reset()
    assert backoff.ceiling_s == 0.05


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"acks": 2}, "acks is 2"),
        ({"acks": []}, r"acks is \[\]"),
        ({"acks": 0, "idempotent": True}, "cannot be idempotent"),
        ({"linger_ms": -1}, "linger_ms is -1"),
        ({"batch_bytes": 0}, "batch_bytes is 0"),
    ],
)
def test_producer_options_that_contradict_are_refused(options: dict[str, Any], words: str) -> None:
    merged = {"acks": "all", "idempotent": None, "compression": "none", **options}
    with pytest.raises(InvalidArgument, match=words):
        producer_options(**merged)


def test_an_unknown_compression_is_refused() -> None:
    with pytest.raises(UnsupportedCompression, match="zstd"):
        producer_options(acks="all", idempotent=None, compression="rar")


def test_a_producer_is_idempotent_unless_it_learns_nothing() -> None:
    assert producer_options(acks="all", idempotent=None, compression="none").idempotent
    assert not producer_options(acks=0, idempotent=None, compression="none").idempotent


def test_client_options_are_checked() -> None:
    with pytest.raises(InvalidArgument, match="connect_timeout_s is 0"):
        ClientOptions(connect_timeout_s=0)


@given(
    st.dictionaries(st.text("äa", max_size=3), st.none() | st.binary(max_size=3)),
    st.none() | st.binary(max_size=3),
)
def test_the_size_of_parts_is_an_upper_bound(headers: dict[str, bytes | None], key: bytes | None) -> None:
    same_key, pairs, size_bytes = checked_parts(key, headers)
    assert (same_key, dict(pairs)) == (key, headers)
    written = sum(len(name.encode()) + len(value or b"") + 2 for name, value in pairs) + len(key or b"")
    assert size_bytes >= written


@given(st.text("ab.*?", max_size=6), st.text("ab.", max_size=6))
def test_patterns_match_as_the_broker_matches_them(pattern: str, topic: str) -> None:
    def model(p: str, t: str) -> bool:
        if not p:
            return not t
        if p[0] == "*":
            return model(p[1:], t) or (bool(t) and model(p, t[1:]))
        return bool(t) and p[0] in ("?", t[0]) and model(p[1:], t[1:])

    assert matches(pattern, topic) == model(pattern, topic)


def test_a_new_connection_gets_positions_and_topics_that_came_meanwhile() -> None:
    selection = TopicSelection(["a", "b", "o.*"], END)
    assert selection.first() == [
        Selector("a", False, END),
        Selector("b", False, END),
        Selector("o.*", True, END),
    ]
    again = selection.again({("a", 0): 5, ("a", 1): 7, ("o.x", 0): 3}, ["o.x", "o.new"])
    assert again == [
        Selector("a", False, BEGINNING, {0: 5, 1: 7}),
        Selector("b", False, END),
        Selector("o.new", False, BEGINNING),
        Selector("o.x", False, BEGINNING, {0: 3}),
        Selector("o.*", True, END),
    ]
    assert sorted(selection.drop(["o.*"])) == ["o.*", "o.new", "o.x"]
    assert selection.names == ["a", "b"]


def test_a_member_is_given_positions_only_where_nothing_was_committed() -> None:
    selection = TopicSelection(["a", "o.*"], END)
    again = selection.again_in_group({("a", 1): 7, ("o.x", 0): 3, ("o.gone", 0): 1}, ["o.x", "o.new"])
    assert again == [
        Selector("a", False, END, {1: 7}),
        Selector("o.x", False, END, {0: 3}),
        Selector("o.*", True, END),
    ]


def test_dropping_a_selector_drops_topics_that_only_it_selected() -> None:
    selection = TopicSelection(["o.*", "*.x"], END)
    selection.again({("o.x", 0): 1, ("o.y", 0): 1}, ["o.x", "o.y"])
    assert selection.drop(["o.*"]) == ["o.*", "o.y"]
    assert selection.drop(["*.x"]) == ["*.x", "o.x"]


async def test_batches_grow_while_as_many_wait_as_may_be_in_flight() -> None:
    def opened(queue: PartitionQueue) -> ProducerBatch:
        return ProducerBatch(queue.topic, queue.partition, 0, 60.0, loop=asyncio.get_running_loop())

    accumulator = TopicAccumulator("orders", 100, 400, opened, lambda _: None, is_idempotent=True)
    accumulator.grow(1)
    (queue,) = accumulator.queues

    def send(count: int) -> None:
        for _ in range(count):
            accumulator.batch_for(None, None, 50).size_bytes += 50

    send(2 * MAX_IN_FLIGHT)
    assert {batch.size_bytes for batch in queue.ready} == {100}
    send(10 * MAX_IN_FLIGHT)
    assert max(batch.size_bytes for batch in queue.ready) == 400
    accumulator.shrink(400)
    send(10 * MAX_IN_FLIGHT)
    assert queue.ready[-1].size_bytes == 200
