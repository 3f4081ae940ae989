"""Syncbrok's codec, for any bytes, split in any way."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparrow.protocol.seeds.syncbrok import Event, Refusal, Server
from tests.http_codec.corpus import AMBIGUOUS
from tests.seeds.syncbrok_client import request

LIMIT = 1_000
bodies = st.binary(max_size=1_200)
requests = st.one_of(
    st.builds(
        request, st.sampled_from(["/msg", "/queue", "/%zz", "*", "//[", "/a b"]), bodies, queue=st.just("q")
    ),
    st.builds(
        lambda chunks: request(
            "/msg",
            b"".join(b"%x\r\n%b\r\n" % (len(chunk), chunk) for chunk in [*chunks, b""]),
            Transfer_Encoding="chunked",
        ),
        st.lists(st.binary(min_size=1, max_size=300), max_size=6),
    ),
    st.binary(max_size=40),
    st.sampled_from(
        [
            request("/msg", b"x", Content_Length="-1"),
            request("/msg", b"x", Content_Length="99999999999999999999999"),
            request("/msg", b"x", version="9.9"),
            request("/msg", b"x", Connection="close"),
            request("/msg", b"ffffffffffffffffffff\r\n", Transfer_Encoding="chunked"),
            request("/msg", b"x", Expect="100-continue", method="CONNECT"),
            b"\r\n\r\n",
        ]
    ),
)


def talk(chunks: list[bytes]) -> tuple[list[Event], bytes]:
    """Return the events, each of which is answered, and all bytes that were sent."""
    server = Server(LIMIT)
    events: list[Event] = []
    sent = b""
    for chunk in chunks:
        if server.must_close:
            break
        server.receive_data(chunk)
        while (event := server.next_event()) is not None:
            events.append(event)
            server.respond(event.status if isinstance(event, Refusal) else 200, b"answer", "now")
        sent += server.data_to_send()
        assert server.bytes_wanted <= LIMIT + 1
    return events, sent


def essence(event: Event) -> object:
    """Reduce a refusal to its status: the reason depends on how the bytes are split."""
    return event.status if isinstance(event, Refusal) else event


@pytest.mark.slow
@given(st.lists(requests, max_size=5).map(b"".join), st.lists(st.integers(0, 8_000), max_size=6))
def test_any_bytes_cut_anywhere_are_answered_alike(data: bytes, positions: list[int]) -> None:
    edges = [0, *sorted(position % (len(data) + 1) for position in positions), len(data)]
    cut = [data[start:end] for start, end in itertools.pairwise(edges)]
    events, sent = talk(cut)
    whole_events, whole_sent = talk([data])
    assert list(map(essence, events)) == list(map(essence, whole_events))
    assert sent == whole_sent
    assert sent.count(b"HTTP/1.1 ") - sent.count(b" 100 Continue") == len(events)


@given(st.lists(bodies.filter(lambda body: len(body) <= LIMIT), max_size=5))
def test_bodies_come_as_they_were_sent(sent: list[bytes]) -> None:
    events, _ = talk([b"".join(request("/msg", body, queue="q", ParentId="p") for body in sent)])
    assert [event.body for event in events if not isinstance(event, Refusal)] == sent
    assert all(not isinstance(event, Refusal) and event.header(b"parentid") == b"p" for event in events)


def test_nothing_is_kept_behind_a_refusal() -> None:
    server = Server(LIMIT)
    server.receive_data(request("/msg", b"x" * (LIMIT + 1)))
    assert isinstance(server.next_event(), Refusal)
    server.receive_data(request("/msg", b"y"))
    assert server.next_event() is None
    assert server.bytes_wanted == 0
    assert server.must_close


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_request_is_refused_and_nothing_behind_it_is_read(name: str) -> None:
    data = AMBIGUOUS[name] + request("/msg", b"smuggled", queue="q")
    for chunks in ([data], [data[at : at + 1] for at in range(len(data))]):
        events, sent = talk(chunks)
        assert [essence(event) for event in events] == [400]
        assert sent.count(b"Connection: close\r\n") == sent.count(b"HTTP/1.1 4") == 1
