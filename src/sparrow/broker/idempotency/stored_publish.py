"""The stored state of a publish with an idempotency key: the plan before it, the position of each
batch after it. Pure.

    idempotency    <key's digest>    [version, created_ms, principal, fingerprint, topic id,
                                      producer id, terms, runs, looked_from]

Terms and runs determine which messages of the request went where, so that the body of a repeated
request gives the response again: no response is stored.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparrow.base.errors import InvalidArgument, SparrowError, from_code
from sparrow.broker import entries
from sparrow.meta.store import Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.meta.store import Entry

KIND: Final = "idempotency"
VERSION: Final = 1
MAX_RUNS: Final = 32_768
"""Batches of one publish; their numbers are epochs, which have 16 bits."""
_DIGEST_BYTES: Final = 16
_MAX_TEXT: Final = 500


class IdempotencyKey(NamedTuple):
    """A key as a request uses it, with its principal and the request's fingerprint."""

    principal: str
    text: str
    fingerprint: bytes
    """Digest of everything by which two requests differ."""
    window_ms: int = 0
    """The key is free again after this time; 0: after the window of all keys."""

    @property
    def digest(self) -> str:
        """The name of the key among those of all principals."""
        whole = f"{self.principal}\x00{self.text}".encode()
        return hashlib.blake2b(whole, digest_size=_DIGEST_BYTES).hexdigest()


class StoredRun(msgspec.Struct, array_like=True):
    """One batch: `count` messages for a partition, and its result."""

    partition: int
    count: int
    base_offset: int = -1
    """Offset of the batch; -1: not known."""
    append_time_ms: int = -1
    """Append time if the topic stamps records; else -1."""
    code: str = ""
    """Error code if it can never be stored."""
    text: str = ""

    @property
    def is_settled(self) -> bool:
        """Return True if its result will not change any more."""
        return self.base_offset >= 0 or bool(self.code)

    def refuse(self, error: SparrowError) -> None:
        """Note that it is not stored and never will be."""
        self.code, self.text = error.code, error.text[:_MAX_TEXT]

    @property
    def error(self) -> SparrowError | None:
        """The error of a refused batch, or None."""
        return from_code(self.code, self.text) if self.code else None


class StoredPublish(msgspec.Struct, array_like=True):
    """One publish. `terms` are those of `frontends/publisher.py`, as they were at the first
    attempt.
    """

    version: int
    created_ms: int
    principal: str
    fingerprint: bytes
    topic_id: bytes
    producer_id: int
    terms: list[int]
    runs: list[StoredRun]
    looked_from: dict[int, int]
    """Lower bound, by partition, of the offsets of batches that are not settled."""

    @property
    def is_settled(self) -> bool:
        return all(run.is_settled for run in self.runs)

    @property
    def is_stored_in_part(self) -> bool:
        return any(run.base_offset >= 0 for run in self.runs)

    def put(self, digest: str, if_version: int) -> Put:
        """Return the write that stores it."""
        return Put(KIND, digest, _ENCODER.encode(self), if_version)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(StoredPublish)


def plan(
    key: IdempotencyKey,
    topic_id: uuid.UUID,
    terms: Sequence[int],
    runs: Sequence[tuple[int, int]],
    *,
    producer_id: int,
    created_ms: int,
    ends: dict[int, int],
) -> StoredPublish:
    """Return the plan of a publish.

    Args:
        runs: partition and number of messages of each batch.
        ends: present end offset of each of those partitions.

    Raises:
        InvalidArgument: too many batches.
    """
    if len(runs) > MAX_RUNS:
        raise InvalidArgument(
            f"a publish with an idempotency key of {len(runs)} batches; at most {MAX_RUNS} are "
            "possible: send fewer messages"
            " together"
        )
    kept = [StoredRun(partition, count) for partition, count in runs]
    return StoredPublish(
        VERSION,
        created_ms,
        key.principal,
        key.fingerprint,
        topic_id.bytes,
        producer_id,
        list(terms),
        kept,
        ends,
    )


def decode(entry: Entry) -> StoredPublish:
    """Return the publish of an entry.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    return entries.read(entry, _DECODER.decode, VERSION)
