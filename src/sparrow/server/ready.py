"""Announcement that clients can connect: a block of text for people, and a file for supervisors.

The ready file is JSON, replaced atomically, and removed at the stop: {"pid": …, "url":
"sparrow://…", "host": …, "port": …, "data_dir": …, "kafka": "localhost:9092", "http":
"http://127.0.0.1:9095", "seeds": {"mbus": "127.0.0.1:9990", …}}.
"""

from __future__ import annotations

import os
from contextlib import suppress

import msgspec

from sparrow.base.errors import InvalidConfig
from sparrow.base.units import counted, format_size


class Ready(msgspec.Struct, frozen=True):
    """The addresses of a running server."""

    pid: int
    version: str
    url: str
    host: str
    port: int
    data_dir: str
    kafka: str = ""
    """Bootstrap servers for Kafka clients; "" when that listener is off."""
    http: str = ""
    """Address of the HTTP listener; "" when it is off."""
    seeds: dict[str, str] = msgspec.field(default_factory=dict)
    """host:port of each listener for a seed system that is on."""


def url_of(host: str, port: int, *, has_tls: bool = False) -> str:
    """Return the address for clients; a server that listens on all addresses is reached on this
    machine by loopback.
    """
    return f"{'sparrows' if has_tls else 'sparrow'}://{bootstrap_of(host, port)}"


def http_url_of(host: str, port: int, *, has_tls: bool) -> str:
    """Return the address of the HTTP listener."""
    return f"{'https' if has_tls else 'http'}://{bootstrap_of(host, port)}"


def bootstrap_of(host: str, port: int) -> str:
    """Return host:port as seen from this machine."""
    reachable = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 - compared, not bound
    return f"[{reachable}]:{port}" if ":" in reachable else f"{reachable}:{port}"


def banner(ready: Ready, *, topics: int, free_bytes: int | None, access: str) -> str:
    """Return the block of text that says which listener is where, and where the data is.

    Args:
        free_bytes: None: the data has no limit of its own.
    """
    free = "" if free_bytes is None else f", {format_size(free_bytes)} free"
    lines = [
        f"Sparrow {ready.version} is ready (pid {ready.pid})",
        f"  clients   {ready.url}",
        *([f"  Kafka     {ready.kafka}"] if ready.kafka else []),
        *([f"  HTTP      {ready.http} (API: /docs, metrics: /metrics)"] if ready.http else []),
        *(
            [f"  seeds     {', '.join(f'{name} {at}' for name, at in ready.seeds.items())}"]
            if ready.seeds
            else []
        ),
        f"  access    {access}",
        f"  data      {ready.data_dir} ({counted(topics, 'topic')}{free})",
        "  stop      Ctrl-C or SIGTERM",
    ]
    return "\n".join(lines)


def write_ready_file(path: str, ready: Ready) -> None:
    """Write the file atomically, so that a supervisor never sees half of it.

    Raises:
        InvalidConfig: the file cannot be written.
    """
    partial = f"{path}.{ready.pid}.tmp"
    try:
        with open(partial, "w", encoding="utf-8") as file:
            file.write(msgspec.json.encode(ready).decode())
        os.replace(partial, path)
    except OSError as error:
        raise InvalidConfig(f"ready_file {path} cannot be written: {error.strerror}") from None


def remove_ready_file(path: str) -> None:
    """Remove the file; one that is gone already is no error."""
    with suppress(OSError):
        os.unlink(path)
