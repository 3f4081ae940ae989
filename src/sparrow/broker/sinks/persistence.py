"""Sinks and their stages in the meta store: an entry of kind "sink" for each sink, one of kind
"sink-stage" for each open stage.

The key of a sink is its id, that of a stage the number of its slot. Values are the msgpack arrays
of `_SinkEntry` and `_StageEntry`, format version 1. New fields are appended, with a default; a
change of meaning is a new version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.broker import entries
from sparrow.broker.sinks.stage import Stage
from sparrow.broker.sinks.state import Sink
from sparrow.meta.store import Delete, Put

if TYPE_CHECKING:
    from sparrow.meta.store import Entry

SINK: Final = "sink"
STAGE: Final = "sink-stage"
_VERSION: Final = 1


class _SinkEntry(msgspec.Struct, array_like=True):
    version: int
    query: str
    run: str
    epoch: int
    last_batch: int
    updated_ms: int
    past_runs: tuple[str, ...]


class _StageEntry(msgspec.Struct, array_like=True):
    version: int
    sink_id: str
    run: str
    batch: int
    task: int
    attempt: int
    timeout_ms: int
    producer_id: int
    epoch: int
    opened_ms: int


_encode = msgspec.msgpack.Encoder().encode
_decode_sink = msgspec.msgpack.Decoder(_SinkEntry).decode
_decode_stage = msgspec.msgpack.Decoder(_StageEntry).decode


def put_sink(sink: Sink) -> Put:
    """Return the write that stores a sink."""
    entry = _SinkEntry(
        _VERSION, sink.query, sink.run, sink.epoch, sink.last_batch, sink.updated_ms, sink.past_runs
    )
    return Put(SINK, sink.sink_id, _encode(entry))


def delete_sink(sink_id: str) -> Delete:
    """Return the write that deletes a sink."""
    return Delete(SINK, sink_id)


def read_sink(entry: Entry) -> Sink:
    """Return the sink of an entry.

    Raises:
        DirectoryUnreadable, NewerFormat: it is no sink, or one of a later Sparrow.
    """
    stored = entries.read(entry, _decode_sink, _VERSION)
    return Sink(
        entry.key,
        stored.query,
        stored.run,
        stored.epoch,
        stored.last_batch,
        stored.updated_ms,
        stored.past_runs,
    )


def put_stage(stage: Stage, producer_id: int, epoch: int) -> Put:
    """Return the write that stores a stage with its producer."""
    entry = _StageEntry(
        _VERSION,
        stage.sink_id,
        stage.run,
        stage.batch,
        stage.task,
        stage.attempt,
        stage.timeout_ms,
        producer_id,
        epoch,
        stage.opened_ms,
    )
    return Put(STAGE, str(stage.slot), _encode(entry))


def delete_stage(slot: int) -> Delete:
    """Return the write that deletes a stage."""
    return Delete(STAGE, str(slot))


def read_stage(entry: Entry) -> Stage:
    """Return the stage of an entry. Raises as `read_sink`."""
    stored = entries.read(entry, _decode_stage, _VERSION)
    if not entry.key.isdecimal():
        raise entries.unreadable(entry, "its key is no number")
    return Stage(
        int(entry.key),
        stored.sink_id,
        stored.run,
        stored.batch,
        task=stored.task,
        attempt=stored.attempt,
        timeout_ms=stored.timeout_ms,
        opened_ms=stored.opened_ms,
        producer_id=stored.producer_id,
        epoch=stored.epoch,
        is_synced=False,
    )
