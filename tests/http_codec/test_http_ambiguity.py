"""The corpus of ambiguous requests, at the codec: refused whatever pieces the bytes come in."""

from __future__ import annotations

import pytest

from sparrow.protocol.http.errors import MalformedRequest
from tests.http_codec.corpus import AMBIGUOUS
from tests.http_codec.driver import codec, events_of, in_two

BEHIND = b"GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_an_ambiguous_request_is_refused_however_it_is_divided(name: str) -> None:
    sent = AMBIGUOUS[name] + BEHIND
    whole = events_of([sent])
    assert whole[-1] == ("MalformedRequest", "MALFORMED_REQUEST")
    assert "/smuggled" not in [each["path"] for each in whole if isinstance(each, dict)]
    for pieces in in_two(sent):
        assert events_of(pieces) == whole, pieces


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_nothing_is_read_behind_an_ambiguous_request(name: str) -> None:
    reader = codec()
    reader.receive_data(AMBIGUOUS[name])
    assert isinstance(list(reader.events())[-1], MalformedRequest)
    reader.receive_data(BEHIND * 3)
    assert not list(reader.events())
    assert not reader.must_close, "its response is due"
    reader.respond(400, [])
    assert reader.must_close
    assert b"connection: close\r\n" in b"".join(reader.data_to_send())
