"""Counting in the clients that parse no more bytes than they need."""

from __future__ import annotations

import socket
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

nats = pytest.importorskip("nats", reason="nats-py is not installed")

from bench.clients.nats import Counter, Link, messages  # noqa: E402

VALUES = st.lists(st.binary(max_size=30), max_size=20)


def cut(whole: bytes, places: list[int]) -> list[bytes]:
    """Return the bytes in pieces."""
    at = sorted({place % (len(whole) + 1) for place in places} | {0, len(whole)})
    return [whole[begin:end] for begin, end in pairwise(at)]


class Received(Link):
    """A connection whose bytes have all arrived."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.socket, self._other = socket.socketpair()
        self._pieces = pieces

    def receive(self) -> bytes:
        return self._pieces.pop(0)

    def answered(self) -> bytes:
        """Return the bytes that were sent back, and end the connection."""
        self.socket.close()
        said = self._other.recv(1000)
        self._other.close()
        return said


@given(
    st.lists(st.sampled_from([b"}\r\n", b"{", b"\r\n", b"}", b"x\r"]), max_size=40), st.lists(st.integers(0))
)
def test_a_mark_is_counted_once_however_the_bytes_are_cut(parts: list[bytes], places: list[int]) -> None:
    counter, whole = Counter(b"}\r\n"), b"".join(parts)
    for piece in cut(whole, places):
        counter.add(piece)
    assert counter.count == whole.count(b"}\r\n")


@given(VALUES, st.lists(st.integers(0)))
def test_messages_of_nats_are_read_however_the_bytes_are_cut(values: list[bytes], places: list[int]) -> None:
    whole = b"PING\r\n" + b"".join(
        b"MSG _INBOX.a 1 $JS.ACK.%d %d\r\n" % (n, len(value)) + value + b"\r\n"
        for n, value in enumerate(values)
    )
    link = Received(cut(whole, places))
    found = messages(link)
    assert [next(found) for _ in values] == [(b"$JS.ACK.%d" % n, value) for n, value in enumerate(values)]
    assert link.answered() == (b"PONG\r\n" if values else b"")


def test_malformed_messages_are_reported() -> None:
    link = Received([b"HMSG _INBOX.a 1 12 12\r\nNATS/1.0 409\r\n"])
    with pytest.raises(ConnectionError, match="NATS sent b'HMSG"):
        next(messages(link))
    link.answered()
