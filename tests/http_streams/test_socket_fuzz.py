"""Any frames in any order: each gets a reply or has an effect, and none meets a bug of the
broker.
"""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sparrow.broker.config import BrokerConfig
from tests.http_frontend.conftest import Http, MakeHttp
from tests.http_streams.conftest import DEADLINE_S, fill, socket_to
from tests.repetitions import repetitions

NAMES = st.sampled_from(["s", "t", "q", "w", "nobody's"])
WEIRD = (
    st.none()
    | st.booleans()
    | st.integers(-(2**64), 2**64)
    | st.text(max_size=5)
    | st.lists(st.integers(), max_size=2)
)
NUMBERS = st.integers(-2, 2**62) | st.integers(0, 3)
PLACES = st.lists(
    st.fixed_dictionaries(
        {"topic": NAMES, "partition": st.integers(0, 2), "offset": st.integers(0, 9) | st.just(2**61)}
    ),
    max_size=2,
)
MEMBERS: dict[str, st.SearchStrategy[Any]] = {
    "subscription": NAMES,
    "topic": NAMES,
    "queue": NAMES,
    "topics": st.lists(NAMES, max_size=2),
    "pattern": st.sampled_from(["*", "t*", "[", ""]),
    "group": st.sampled_from(["", "g", "h", "\x00"]),
    "consumer": st.sampled_from(["", "c"]),
    "subscriber": st.sampled_from(["", "x"]),
    "from": st.sampled_from(["beginning", "end", "0:1", "0:9,1:1", "timestamp:0", 0, 5, "x"]),
    "positions": PLACES,
    "offsets": PLACES,
    "partition": st.integers(-2, 3),
    "credit": NUMBERS,
    "records": NUMBERS,
    "create": st.booleans(),
    "isolation": st.sampled_from(["committed", "uncommitted"]),
    "leases": st.lists(st.sampled_from(["", "x", "l84n", "HELD"]), max_size=3),
    "delay_ms": NUMBERS,
    "lease_ms": NUMBERS,
    "error": st.text(max_size=4),
    "message": st.fixed_dictionaries({"value": st.text(max_size=5)}) | WEIRD,
    "messages": st.lists(st.fixed_dictionaries({"value": st.text(max_size=5), "key": st.none()}), max_size=3),
    "token": st.text(max_size=3),
}
SHAPES = {
    "publish": ["topic", "message"],
    "subscribe": ["subscription", "topic", "credit", "from"],
    "credit": ["subscription", "records"],
    "ack": ["subscription", "leases"],
    "nack": ["subscription", "leases", "delay_ms"],
    "reject": ["subscription", "leases"],
    "extend": ["subscription", "leases", "lease_ms"],
    "release": ["subscription", "leases"],
    "commit": ["subscription", "offsets"],
    "unsubscribe": ["subscription"],
    "ping": [],
    "hello": ["token"],
}


@st.composite
def frames(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a nearly correct frame: sometimes a member is missing, unknown or of another type."""
    kind = draw(st.sampled_from(sorted(SHAPES)))
    names = list(SHAPES[kind])
    if kind == "subscribe" and draw(st.booleans()):
        names = ["subscription", "queue", "create", "credit"]
    if draw(st.integers(0, 3)) == 0:
        names = [*names[1:], draw(st.sampled_from(sorted(MEMBERS)))]
    found = {name: draw(MEMBERS[name]) for name in names}
    if names and draw(st.integers(0, 5)) == 0:
        found[draw(st.sampled_from(names))] = draw(WEIRD)
    return {"type": kind, "id": 0, **found}


@pytest.fixture
async def frontend(make_http: MakeHttp) -> Http:
    http = await make_http(config=BrokerConfig(default_partitions=2, group_initial_rebalance_delay_ms=0))
    for topic in ("s", "t", "q"):
        await fill(http, topic, "a", "b", "c")
    return http


@pytest.mark.slow
@settings(
    max_examples=repetitions(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(sent=st.lists(frames(), max_size=12))
async def test_no_frame_is_a_bug_of_the_broker(
    frontend: Http, caplog: pytest.LogCaptureFixture, sent: list[dict[str, Any]]
) -> None:
    caplog.set_level(logging.ERROR)
    held = ["x"]
    async with socket_to(frontend.port) as socket:
        for number, frame in enumerate(sent):
            if isinstance(frame.get("leases"), list):
                frame["leases"] = [held[-1] if each == "HELD" else each for each in frame["leases"]]
            await socket.connection.send(json.dumps(frame))
            await socket.send("ping", id=f"behind {number}")
            async with asyncio.timeout(DEADLINE_S):
                while (response := await socket.next()).get("id") != f"behind {number}":
                    held += [each["lease"] for each in response.get("messages", ()) if "lease" in each]
                    assert response.get("error", {}).get("code") != "INTERNAL", response
    assert not caplog.records
