"""Bodies that are small as text and large as objects, and bodies that take long: others must not
notice.
"""

from __future__ import annotations

import threading
import tracemalloc

import pytest

from sparrow.base.errors import SparrowError
from sparrow.frontends import publisher
from sparrow.frontends.http import publishes, records
from sparrow.frontends.http.limits import HttpLimits
from tests.http_frontend.conftest import Http

BODY_BYTES = 4 << 20
LIMITS = HttpLimits(max_messages=1000)


def _swarm(head: bytes, unit: bytes, tail: bytes) -> bytes:
    return head + unit * (BODY_BYTES // len(unit)) + unit.rstrip(b",") + tail


SWARMS = {
    "headers": _swarm(b'{"messages":[{"headers":[', b'["",""],', b"]}]}"),
    "object of headers": _swarm(b'{"messages":[{"headers":{', b'"":"",', b"}}]}"),
    "parents": _swarm(b'{"messages":[{"parents":[', b'"a",', b"]}]}"),
    "parents that end in a backslash": _swarm(b'{"messages":[{"parents":[', b'"\\\\",', b"]}]}"),
    "messages": _swarm(b'{"messages":[', b"{},", b"]}"),
    "messages of text": _swarm(b'{"messages":[', b'{"value":""},', b"]}"),
}


@pytest.mark.parametrize("name", SWARMS)
@pytest.mark.parametrize("kind", [records.JSON, records.NDJSON])
def test_countless_tiny_texts_are_refused_before_they_take_memory(name: str, kind: str) -> None:
    body = SWARMS[name]
    if kind == records.NDJSON:
        body = body.removeprefix(b'{"messages":[').removesuffix(b"]}")
    tracemalloc.start()
    try:
        with pytest.raises(SparrowError):
            records.messages_of(body, kind, (), limits=LIMITS, now_ms=0)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 5 * BODY_BYTES, most_bytes


def test_a_message_has_a_limited_number_of_parents() -> None:
    body = b'{"messages":[{"parents":[%b"a"]}]}' % (b'"a",' * records.MAX_HEADERS)
    with pytest.raises(SparrowError, match="parents"):
        records.messages_of(body, records.JSON, (), limits=LIMITS, now_ms=0)


def test_values_full_of_quotes_and_braces_are_no_swarm() -> None:
    value = b'\\"a\\":{\\"b\\":{}},' * 8000
    body = b'{"messages":[%b]}' % b",".join([b'{"value":"%b"}' % value] * 10)
    assert body.count(b"{") > records.MAX_OBJECTS_UNCOUNTED
    published = records.messages_of(body, records.JSON, (), limits=HttpLimits(max_messages=10), now_ms=0)
    assert len(published.messages) == 10


@pytest.mark.parametrize("headers", [{}, {"idempotency_key": "once"}])
async def test_a_publish_that_takes_long_does_so_in_a_thread(
    http: Http, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[int]] = {"messages_of": set(), "build_batch": set()}
    for module, name in ((publishes, "messages_of"), (publisher, "build_batch")):
        found = getattr(module, name)

        def noted(*given: object, name: str = name, found: object = found, **named: object) -> object:
            threads[name].add(threading.get_ident())
            return found(*given, **named)  # type: ignore[operator]

        monkeypatch.setattr(module, name, noted)
    body = b'{"messages":[%b]}' % b",".join([b'{"value":"%b"}' % (b"v" * 1000)] * 1000)
    response = await http.post("/v1/topics/t/messages", body, content_type="application/json", **headers)
    assert [place["offset"] for place in response.json["messages"]] == list(range(1000))
    assert all(each and threading.get_ident() not in each for each in threads.values())
