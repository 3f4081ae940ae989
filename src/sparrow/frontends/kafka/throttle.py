"""Holding back clients that exceed a quota (KIP-13, KIP-219): the answer goes out at once and tells for how long, and nothing more is
taken from the connection meanwhile.

A Fetch that exceeds its quota is answered empty, as what it read would be over the limit at once; it is not counted then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from sparrow.broker.quota_rules import QuotaKind

if TYPE_CHECKING:
    from sparrow.frontends.kafka.dispatch import Call


def after_produce(call: Call, sizes: Callable[[], Iterable[int]]) -> int:
    """Count the bytes of a Produce; how many milliseconds the client is held back."""
    quotas = call.broker.quotas
    if not quotas.is_limited(QuotaKind.PRODUCE):
        return 0
    throttle_ms = quotas.record(QuotaKind.PRODUCE, call.principal, call.client_id, sum(sizes()))
    if throttle_ms:
        call.connection.mute(throttle_ms / 1000)
    return throttle_ms


def after_fetch(call: Call, size_bytes: int) -> int:
    """Count the bytes of a Fetch; if not 0, it is to be answered empty, and the client is held back for so many milliseconds."""
    quotas = call.broker.quotas
    if not quotas.is_limited(QuotaKind.FETCH):
        return 0
    throttle_ms = quotas.record(QuotaKind.FETCH, call.principal, call.client_id, size_bytes)
    if throttle_ms:
        quotas.unrecord(QuotaKind.FETCH, call.principal, call.client_id, size_bytes)
        call.connection.mute(throttle_ms / 1000)
    return throttle_ms


def max_fetch_bytes(call: Call, wanted: int) -> int:
    """At most what the client's quota can ever allow at a time; else its fetches would be over the limit for ever."""
    most = call.broker.quotas.max_in_window(QuotaKind.FETCH, call.principal, call.client_id)
    return wanted if most is None else min(wanted, most)
