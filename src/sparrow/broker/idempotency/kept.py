"""What is kept of a publish with an idempotency key: the plan before it, where each batch is after it. Pure.

    idempotency    <key's digest>    [version, created_ms, principal, fingerprint, topic id, producer id, terms, runs, looked_from]

Terms and runs say which messages of the same request went where, so that the request's own body gives the answer again: no answer is kept.
"""

from __future__ import annotations

import hashlib
import uuid
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from sparrow.base.errors import DirectoryUnreadable, InvalidArgument, NewerFormat, SparrowError, from_code
from sparrow.meta.store import Put

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparrow.meta.store import Fact

KIND: Final = "idempotency"
VERSION: Final = 1
MAX_RUNS: Final = 32_768
"""Batches of one publish; their numbers are epochs, which have 16 bits."""
_DIGEST_BYTES: Final = 16
_MAX_TEXT: Final = 500


class Key(NamedTuple):
    """A key as it is used: whose it is, and of which request."""

    principal: str
    text: str
    fingerprint: bytes
    """Of everything by which two requests differ."""

    @property
    def digest(self) -> str:
        """The name of the key among those of all principals."""
        whole = f"{self.principal}\x00{self.text}".encode()
        return hashlib.blake2b(whole, digest_size=_DIGEST_BYTES).hexdigest()


class KeptRun(msgspec.Struct, array_like=True):
    """One batch: so many messages for a partition, and what became of it."""

    partition: int
    count: int
    base_offset: int = -1
    """Where it is; -1: not known."""
    append_time_ms: int = -1
    """Where the topic stamped it; else -1."""
    code: str = ""
    """Why it can never be stored."""
    text: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether its answer will not change any more."""
        return self.base_offset >= 0 or bool(self.code)

    def refuse(self, error: SparrowError) -> None:
        """It is not stored, and will not be."""
        self.code, self.text = error.code, error.text[:_MAX_TEXT]

    @property
    def error(self) -> SparrowError | None:
        """Why it was refused."""
        return from_code(self.code, self.text) if self.code else None


class KeptPublish(msgspec.Struct, array_like=True):
    """One publish. `terms` are those of `frontends/publishing.py`, as they were at the first attempt."""

    version: int
    created_ms: int
    principal: str
    fingerprint: bytes
    topic_id: bytes
    producer_id: int
    terms: list[int]
    runs: list[KeptRun]
    looked_from: dict[int, int]
    """By partition: its batches that are not settled lie at this offset or later, if anywhere."""

    @property
    def is_settled(self) -> bool:
        return all(run.is_settled for run in self.runs)

    @property
    def is_stored_in_part(self) -> bool:
        return any(run.base_offset >= 0 for run in self.runs)

    def put(self, digest: str, if_version: int) -> Put:
        """What keeps it."""
        return Put(KIND, digest, _ENCODER.encode(self), if_version)


_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(KeptPublish)


def plan(
    key: Key,
    topic_id: uuid.UUID,
    terms: Sequence[int],
    runs: Sequence[tuple[int, int]],
    *,
    producer_id: int,
    created_ms: int,
    ends: dict[int, int],
) -> KeptPublish:
    """What is about to be published.

    Args:
        runs: partition and number of messages of each batch.
        ends: where those partitions end now.

    Raises:
        InvalidArgument: too many batches.
    """
    if len(runs) > MAX_RUNS:
        raise InvalidArgument(
            f"a publish with an idempotency key of {len(runs)} batches; at most {MAX_RUNS} are possible: send fewer messages"
            " together"
        )
    kept = [KeptRun(partition, count) for partition, count in runs]
    return KeptPublish(
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


def decode(fact: Fact) -> KeptPublish:
    """What a fact holds.

    Raises:
        DirectoryUnreadable, NewerFormat
    """
    try:
        kept = _DECODER.decode(fact.value)
    except (msgspec.DecodeError, ValueError) as error:
        raise DirectoryUnreadable(
            f"the {KIND} {fact.key!r} of the meta store cannot be read ({error}); restore meta.db from a backup"
        ) from None
    if kept.version > VERSION:
        raise NewerFormat(f"the {KIND} {fact.key!r} was written by a later Sparrow; start that one")
    return kept
