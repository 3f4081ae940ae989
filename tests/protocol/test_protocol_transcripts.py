"""Conversations of released versions still have the same meaning and the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from sparrow.protocol.native import messages as m
from sparrow.protocol.native.connection import Connection, Received, Role, State
from sparrow.protocol.native.frames import Frame, FrameDecoder, split_payload

TRANSCRIPTS = sorted((Path(__file__).parent / "transcripts").glob("*.txt"))


class Line(NamedTuple):
    sender: Role
    kind: m.FrameType
    channel: int
    head_json: str
    data: bytes


def _lines(path: Path) -> list[Line]:
    texts = [t for t in path.read_text().splitlines() if t and not t.startswith("#")]
    frames = []
    for title, dump in zip(texts[::2], texts[1::2], strict=True):
        sender, kind, channel, head = title.split(" ", 3)
        frames.append(Line(Role(sender), m.FrameType[kind], int(channel), head, bytes.fromhex(dump)))
    return frames


def _parsed(line: Line) -> tuple[m.Head, memoryview | None]:
    frames: list[Frame] = []
    FrameDecoder().receive_data(line.data, lambda *frame: not frames.append(frame))
    ((kind, flags, channel, payload),) = frames
    assert (kind, channel) == (line.kind, line.channel)
    batches = None
    if flags:
        payload, batches = split_payload(payload)
    return msgspec.msgpack.decode(payload, type=m.HEADS[line.kind]), batches


def test_there_is_a_transcript_of_version_1_with_every_type() -> None:
    kinds = {line.kind for path in TRANSCRIPTS if path.name.startswith("v1-") for line in _lines(path)}
    assert kinds == set(m.FrameType)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_heads_decode_as_in_the_transcript(path: Path) -> None:
    for line in _lines(path):
        head, _ = _parsed(line)
        assert json.loads(msgspec.json.encode(m.written_fields(head))) == json.loads(line.head_json)


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda p: p.stem)
def test_both_sides_replay_the_transcript_byte_for_byte(path: Path) -> None:
    sides = {role: Connection(role) for role in Role}
    for line in _lines(path):
        head, batches = _parsed(line)
        sender, receiver = sides[line.sender], sides[line.sender.peer]
        if not isinstance(head, m.Pong):  # the state machine answers a ping itself
            sender.send(head, line.channel, batches)
        assert b"".join(bytes(piece) for piece in sender.data_to_send()) == line.data
        receiver.receive_data(line.data)
        expected = [] if isinstance(head, m.Ping) else [Received(line.channel, head, batches)]
        assert receiver.events() == expected
    assert sides[Role.CLIENT].state is sides[Role.BROKER].state is State.CLOSED
