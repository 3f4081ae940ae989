"""Endpoints in the meta store: one entry under the queue's name and the endpoint's.

    kind     "webhook"
    key      QUEUE/NAME            (names of endpoints have no slash)
    value    msgpack: [version, queue id, settings, secrets [[text, until ms], …],
             owner [kind, name, host], is trusted, is paused, paused because, created ms]

Change procedure: fields are added at the end, with a default; anything else raises the version.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Final

import msgspec

from sparrow.broker import entries
from sparrow.broker.access.authz import Principal
from sparrow.broker.webhooks.endpoint import DEFAULTS, Endpoint, Secret, new_settings
from sparrow.meta.store import Put

if TYPE_CHECKING:
    from sparrow.meta.store import Entry

KIND: Final = "webhook"
VERSION: Final = 1


class _Stored(msgspec.Struct, array_like=True):
    version: int
    queue_id: bytes
    settings: dict[str, Any]
    secrets: list[tuple[str, int]]
    owner: tuple[str, str, str]
    is_trusted: bool
    is_paused: bool
    paused_because: str
    created_ms: int


def key_of(queue: str, name: str) -> str:
    """Return the key of an endpoint's entry."""
    return f"{queue}/{name}"


def entry_of(endpoint: Endpoint) -> Put:
    """Return the entry of an endpoint."""
    values = endpoint.settings.values()
    settings = {
        name: values[name]
        for name in values
        if name not in DEFAULTS or getattr(endpoint.settings, name) != DEFAULTS[name]
    }
    stored = _Stored(
        VERSION,
        endpoint.queue_id.bytes,
        settings,
        [(each.text, each.until_ms) for each in endpoint.secrets],
        (endpoint.owner.kind, endpoint.owner.name, endpoint.owner.host),
        endpoint.is_trusted,
        endpoint.is_paused,
        endpoint.paused_because,
        endpoint.created_ms,
    )
    return Put(KIND, key_of(*endpoint.key), msgspec.msgpack.encode(stored))


_decode = msgspec.msgpack.Decoder(_Stored).decode


def decode(entry: Entry) -> Endpoint:
    """Return the endpoint of an entry.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    queue, _, name = entry.key.rpartition("/")
    with entries.readable(entry):
        stored = entries.read(entry, _decode, VERSION)
        kind, owner, host = stored.owner
        return Endpoint(
            queue,
            name,
            uuid.UUID(bytes=stored.queue_id),
            new_settings(stored.settings),
            tuple(Secret(*each) for each in stored.secrets),
            Principal(owner, kind, host),
            stored.is_trusted,
            stored.is_paused,
            stored.paused_because,
            stored.created_ms,
        )
