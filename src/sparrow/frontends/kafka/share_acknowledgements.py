"""Conversion of acknowledgement batches of share groups to settlements.

The batches of a partition are settled together, as in Kafka: all of them, or none if one is
malformed or names a record that the member has not acquired. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from sparrow.broker.queues.rules.settlement import Settlement, Verb
from sparrow.frontends.kafka.errors import RequestRefusal

if TYPE_CHECKING:
    from collections.abc import Iterable

_VERBS: Final = (
    Verb.ACK,  # gap: there is no record, so it is done
    Verb.ACK,
    Verb.NACK,  # release: redelivered, and this delivery counts
    Verb.REJECT,
    Verb.EXTEND,
)
RENEW: Final = 4
"""(KIP-1222)"""
_RELEASED: Final = "released by the consumer"
_REJECTED: Final = "rejected by the consumer"
_TEXTS: Final = {Verb.NACK: _RELEASED, Verb.REJECT: _REJECTED}


def settlements(topic: str, partition: int, batches: Iterable[Any], *, may_renew: bool) -> list[Settlement]:
    """Convert the acknowledgement batches of a partition; adjacent ranges of the same type are
    joined.

    Args:
        may_renew: the request announced that it renews.

    Raises:
        RequestRefusal: INVALID_REQUEST; a batch is malformed, or they overlap, or are out of order.
    """
    found: list[Settlement] = []
    before = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        _check(first, last, types, before, may_renew=may_renew)
        before = last
        for type_, run_first, run_last in _runs(first, last, types):
            verb = _VERBS[type_]
            if found and found[-1].verb is verb and found[-1].last == run_first - 1:
                found[-1] = replace(found[-1], last=run_last)
            else:
                found.append(
                    Settlement(verb, topic, partition, run_first, run_last, text=_TEXTS.get(verb, ""))
                )
    return found


def _check(first: int, last: int, types: Sequence[int], before: int, *, may_renew: bool) -> None:
    if not 0 <= first <= last:
        raise _invalid(f"The batch from offset {first} to {last} is invalid.")
    if first <= before:
        raise _invalid(
            f"The batch from offset {first} follows one that ends at {before}; they must be in order."
        )
    if len(types) != 1 and len(types) != last - first + 1:
        raise _invalid(
            f"The batch from offset {first} to {last} has {len(types)} acknowledge types; it must "
            "have one, or one "
            "for each record."
        )
    highest = RENEW if may_renew else RENEW - 1
    if min(types) < 0 or max(types) > highest:
        raise _invalid(
            f"The batch from offset {first} to {last} has an acknowledge type that is not 0 to {highest} "
            "(4 is allowed only in a request that announces renewals)."
        )


def _runs(first: int, last: int, types: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """Yield (type, first, last) for each run of equal types."""
    if len(types) == 1:
        yield types[0], first, last
        return
    offset = first
    for type_, group in groupby(types):
        count = sum(1 for _ in group)
        yield type_, offset, offset + count - 1
        offset += count


def _invalid(text: str) -> RequestRefusal:
    return RequestRefusal(ErrorCode.invalid_request, text)
