"""Log lines as programs write them, made from a seed: in five formats, with times that jump, long
lines, empty ones and invalid UTF-8.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

BEGIN_MS = 1_767_200_000_000
"""Late on the last day of 2025, UTC."""
HOSTS = ("web-1", "web-2", "db-1", "queue-1")
LEVELS = ("INFO", "INFO", "INFO", "WARN", "ERROR")


@dataclass(frozen=True)
class Line:
    """A line to be published."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


def lines(count: int, seed: int = 7, step_ms: int = 20_000) -> Iterator[Line]:
    """Return this many lines; some have times before those of earlier lines."""
    dice = random.Random(seed)
    time_ms = BEGIN_MS
    for number in range(count):
        time_ms += dice.randrange(step_ms)
        behind_ms = dice.randrange(1, 90_000) if dice.random() < 0.1 else 0
        host = dice.choice(HOSTS)
        value = dice.choice(_FORMATS)(dice, time_ms, host, number)
        key = None if dice.random() < 0.2 else host.encode()
        headers = (
            (("source", host.encode()), ("source", b"again"), ("none", None)) if dice.random() < 0.3 else ()
        )
        if dice.random() < 0.02:
            value = dice.choice((None, b"", b"\xff\xfe broken \x80", b"x" * 20_000))
        yield Line(key, value, headers, time_ms - behind_ms)


def _apache(dice: random.Random, time_ms: int, host: str, number: int) -> bytes:
    when = f"{datetime.fromtimestamp(time_ms / 1000, UTC):%a %b %d %H:%M:%S %Y}"
    level = dice.choice(LEVELS).lower()
    return f"[{when}] [{level}] [client {host}] File does not exist: /var/www/{number}".encode()


def _syslog(dice: random.Random, time_ms: int, host: str, number: int) -> bytes:
    when = f"{datetime.fromtimestamp(time_ms / 1000, UTC):%b %d %H:%M:%S}"
    process, port = dice.randrange(30_000), dice.randrange(65_536)
    return f"{when} {host} sshd[{process}]: Failed password for user{number} port {port}".encode()


def _hdfs(dice: random.Random, time_ms: int, host: str, number: int) -> bytes:
    when = f"{datetime.fromtimestamp(time_ms / 1000, UTC):%y%m%d %H%M%S}"
    level, responder, block = dice.choice(LEVELS), dice.randrange(3), dice.getrandbits(63)
    text = f"PacketResponder {responder} for block blk_{block} terminating"
    return f"{when} {number} {level} dfs.DataNode$PacketResponder: {text}".encode()


def _json(dice: random.Random, time_ms: int, host: str, number: int) -> bytes:
    return json.dumps(
        {"at": time_ms, "host": host, "n": number, "level": dice.choice(LEVELS), "text": "héllo ☂"}
    ).encode()


def _trace(dice: random.Random, time_ms: int, host: str, number: int) -> bytes:
    return f"{time_ms} ERROR {host} failed\n\tat a.B.c({number})\n\tat d.E.f({dice.randrange(99)})\r".encode()


_FORMATS = (_apache, _syslog, _hdfs, _json, _trace)
