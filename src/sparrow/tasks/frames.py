"""Frames between a worker and its task processes: a length of four bytes, and a msgpack message.

`TaskCall` and `Bye` go to the process, the others come from it.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    import socket

LENGTH: Final = struct.Struct(">I")


class LoadTasks(msgspec.Struct, tag=True):
    """The first message to a process: where its modules are, and the one with the tasks."""

    path: list[str]
    modules: list[str]
    app: str


class TaskCall(msgspec.Struct, tag=True):
    """Run a task."""

    task: str
    id: str
    attempt: int
    attempts: int
    queue: str
    value: bytes
    context: bytes = b""
    parents: list[Any] = []
    keeps_result: bool = False
    """True if the result is wanted."""


class Loaded(msgspec.Struct, tag=True):
    """The process has loaded its modules; or it has not, with the reason."""

    error: str = ""


class ProgressReport(msgspec.Struct, tag=True):
    """Progress of the task that runs."""

    fraction: float
    text: str


class Returned(msgspec.Struct, tag=True):
    """The task has returned, with this JSON."""

    result: bytes


class Raised(msgspec.Struct, tag=True):
    """The task has raised."""

    kind: str
    """"failed", "reject", "retry", "misfit", "result" or "timeout"."""
    name: str
    """Name of the exception's class."""
    text: str
    where: str
    """The traceback."""
    delay_s: float | None = None
    bases: list[str] = []
    """Names of the classes of the exception, for `reject_on`."""


Message = LoadTasks | TaskCall | Loaded | ProgressReport | Returned | Raised
_DECODER: Final = msgspec.msgpack.Decoder(Message)
_ENCODER: Final = msgspec.msgpack.Encoder()


def encode(message: Message) -> bytes:
    """Return a message as a frame."""
    body = _ENCODER.encode(message)
    return LENGTH.pack(len(body)) + body


def decode(body: bytes) -> Message:
    """Return the message of a frame, without its length."""
    found: Message = _DECODER.decode(body)
    return found


def receive(connection: socket.socket) -> Message | None:
    """Wait for a frame and return its message; None at the end of the connection."""
    head = _exactly(connection, LENGTH.size)
    if head is None:
        return None
    body = _exactly(connection, LENGTH.unpack(head)[0])
    return None if body is None else decode(body)


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < count:
        part = connection.recv(count - len(parts))
        if not part:
            return None
        parts += part
    return bytes(parts)
