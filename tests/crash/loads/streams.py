"""Server-Sent Events, resumed by Last-Event-ID, of messages published over a WebSocket, which
another WebSocket follows.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import aiohttp

from sparrow.testing.running_broker import RunningBroker
from tests.crash.histories import Found, Kind
from tests.crash.histories.logs import misread
from tests.crash.loads.http import session
from tests.crash.loads.topic import PAUSE_S, TopicLoad

_SILENCE_S = 10.0
"""Silence after which a connection is given up."""


class Streams(TopicLoad):
    """WebSocket streams: confirmed messages exist once, in the order of the frames; both readers
    get each once, in order, through all faults.

    No reader may get a record that is not on stable storage and is lost later: a kill -9 loses
    nothing that was read.
    """

    name = "streams"
    partitions = 2
    readers: ClassVar[int] = 2

    def __init__(self) -> None:
        super().__init__()
        self._last_event_id = ""
        self._positions: dict[int, int] = {}

    # ── publishing over a WebSocket ───────────────────────────────────────────────────────────────

    async def publish(self, broker: RunningBroker, stop: asyncio.Event) -> None:
        async with session() as http, http.ws_connect(f"{broker.http}/v1/ws") as socket:
            while not stop.is_set():
                numbers = self.burst()
                for number in numbers:
                    await socket.send_json(
                        {
                            "type": "publish",
                            "id": number,
                            "topic": self.name,
                            "partition": number % self.partitions,
                            "message": {"value": str(number)},
                        }
                    )
                for _ in numbers:
                    self._answered(await _frame(socket))
                await asyncio.sleep(PAUSE_S)

    def _answered(self, frame: dict[str, Any]) -> None:
        if frame["type"] == "error" or "error" in frame["messages"][0]:
            raise ConnectionError(str(frame))
        (place,) = frame["messages"]
        self.history.note(Kind.ACKNOWLEDGED, frame["id"], (place["partition"], place["offset"]))

    # ── reading ───────────────────────────────────────────────────────────────────────────────────

    async def read(self, broker: RunningBroker, by: str) -> None:
        await (self._follow_events(broker, by) if by == "r0" else self._follow_frames(broker, by))

    async def _follow_events(self, broker: RunningBroker, by: str) -> None:
        url = f"{broker.http}/v1/topics/{self.name}/stream"
        headers = {"Last-Event-ID": self._last_event_id} if self._last_event_id else {}
        query = {} if self._last_event_id else {"from": "beginning"}
        async with session_without_end() as http, http.get(url, headers=headers, params=query) as stream:
            if stream.status != 200:
                raise ConnectionError(await stream.text())
            block: list[tuple[str, str]] = []
            async for line in stream.content:
                name, _, value = line.decode().rstrip("\n").partition(":")
                if line != b"\n":
                    block.append((name, value.removeprefix(" ")))
                    continue
                self._event(dict(block), by)
                block = []

    def _event(self, event: dict[str, str], by: str) -> None:
        if "event" in event:
            assert event["event"] == "error", event
            raise ConnectionError(event["data"])
        if event.get("data"):
            self._read(json.loads(event["data"]), by)
        self._last_event_id = event.get("id", self._last_event_id)

    async def _follow_frames(self, broker: RunningBroker, by: str) -> None:
        async with session() as http, http.ws_connect(f"{broker.http}/v1/ws") as socket:
            positions = [
                {"topic": self.name, "partition": number, "offset": self._positions.get(number, 0)}
                for number in range(self.partitions)
            ]
            asked = {"subscription": "all", "topic": self.name, "positions": positions, "credit": 100}
            await socket.send_json({"type": "subscribe", **asked})
            while True:
                frame = await _frame(socket)
                if frame["type"] in {"error", "ended"}:
                    raise ConnectionError(str(frame))
                assert frame["type"] != "gap", frame
                if frame["type"] != "messages":
                    continue
                for message in frame["messages"]:
                    self._read(message, by)
                    self._positions[message["partition"]] = message["offset"] + 1
                more = {"subscription": "all", "records": len(frame["messages"])}
                await socket.send_json({"type": "credit", **more})

    def _read(self, message: dict[str, Any], by: str) -> None:
        place = (message["partition"], message["offset"])
        self.history.note(Kind.READ, int(message["value"]), place, by=by)

    # ── the check ─────────────────────────────────────────────────────────────────────────────────

    def is_done(self) -> bool:
        wanted = self.history.numbers(Kind.ACKNOWLEDGED)
        reads = self.history.of(Kind.READ)
        return all(wanted <= {each.number for each in reads if each.by == by} for by in ("r0", "r1"))

    def misread(self, found: list[Found]) -> list[str]:
        return [f"{by}: {breach}" for by in ("r0", "r1") for breach in misread(self.history, found, by=by)]


def session_without_end() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None, sock_read=_SILENCE_S * 2))


async def _frame(socket: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
    message = await socket.receive(timeout=_SILENCE_S)
    if message.type is not aiohttp.WSMsgType.TEXT:
        raise ConnectionError(f"the WebSocket is over: {message}")
    found: dict[str, Any] = json.loads(message.data)
    return found
