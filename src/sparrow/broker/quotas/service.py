"""Quotas of clients: stored, changed by administrators, and measured for every batch in and out.

An entry of kind "quota" has as key the JSON array of the entity's (type, name) pairs, null for a
default, and as value a JSON object of setting and number. `quota_rate` measures, `quota_rules`
selects the quota that applies. Without any quota of a kind, clients are not measured.

A client that exceeds a limit gets its response at once and is then not read from for the time that
brings its rate down again (KIP-219); the frontends do that for the milliseconds that `record`
returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import msgspec

from sparrow.base.errors import BadInput, DirectoryUnreadable, InvalidArgument, SparrowError
from sparrow.broker.access.authz import ANONYMOUS, Operation, Principal, ResourceType
from sparrow.broker.audit.audit import Audit
from sparrow.broker.audit.event import names
from sparrow.broker.changes import Changes
from sparrow.broker.quotas.rate import MIN_WINDOW_SAMPLES, SAMPLE_MS, WindowedRate
from sparrow.broker.quotas.rules import (
    Component,
    Entity,
    QuotaChange,
    QuotaKind,
    QuotaTable,
    Scope,
    check_filter,
    check_values,
    entity_of,
)
from sparrow.meta.store import Delete, Put
from sparrow.model.access import CLUSTER_NAME

if TYPE_CHECKING:
    from sparrow.base.clock import Clock
    from sparrow.broker.access.access import Access
    from sparrow.meta.store import Entry, MetaStore, Write

KIND: Final = "quota"
MAX_KEY_BYTES: Final = 4096
MAX_RATES: Final = 20_000
"""Clients that are measured at a time; client ids that a client makes up must not fill the
memory.
"""
MAX_REQUEST_THROTTLE_MS: Final = SAMPLE_MS
"""The longest delay in ms for the processing time of requests: it is charged in small amounts, so
no client is delayed longer at a time.
"""


class QuotaService:
    """The operations on quotas, `broker.quotas`, their store, and the rates of the clients. Loop
    thread only.
    """

    def __init__(
        self,
        meta: MetaStore,
        clock: Clock,
        access: Access,
        audit: Audit | None = None,
    ) -> None:
        self._audit = audit or Audit()
        self._meta = meta
        self._clock = clock
        self._access = access
        self._changes = Changes(meta)
        self._table = QuotaTable()
        self.has_limits = False
        """False: no client has a limit of any kind, so nothing needs to be recorded."""
        self._rates: dict[tuple[QuotaKind, Scope], WindowedRate] = {}

    async def load(self) -> None:
        """Read the stored quotas.

        Raises:
            DirectoryUnreadable: an entry is no quota.
        """
        self._replace(dict(_decode(entry) for entry in await self._meta.scan(KIND)))

    # ── measuring ─────────────────────────────────────────────────────────────────────────────────

    def is_limited(self, kind: QuotaKind) -> bool:
        """Return True if any client has a limit of this kind; without one, nothing is counted."""
        return self._table.is_limited(kind)

    def record(self, kind: QuotaKind, principal: Principal, client_id: str, amount: float) -> int:
        """Record bytes (or percent of a second) of a client. Return how long the client must be
        throttled, in ms.
        """
        if not self._table.is_limited(kind):
            return 0
        found = self._table.limit(kind, principal.name, client_id)
        if found is None:
            return 0
        limit, scope = found
        now_ms = self._clock.monotonic() * 1000
        rate = self._rate(kind, scope, now_ms)
        rate.record(amount, now_ms)
        throttle_ms = rate.throttle_ms(limit, now_ms)
        return min(throttle_ms, MAX_REQUEST_THROTTLE_MS) if kind is QuotaKind.REQUEST else throttle_ms

    def unrecord(self, kind: QuotaKind, principal: Principal, client_id: str, amount: float) -> None:
        """Subtract bytes that were recorded and then not sent, because the client was throttled."""
        self.record(kind, principal, client_id, -amount)

    def max_in_window(self, kind: QuotaKind, principal: Principal, client_id: str) -> int | None:
        """Return the most that a client could get within its window; None without a limit. A larger
        request could never be served.
        """
        if not self._table.is_limited(kind):
            return None
        found = self._table.limit(kind, principal.name, client_id)
        return None if found is None else max(1, int(found[0] * MIN_WINDOW_SAMPLES * SAMPLE_MS / 1000))

    def _rate(self, kind: QuotaKind, scope: Scope, now_ms: float) -> WindowedRate:
        """Return the rate of the clients that share a limit, and move it to the end of the order of
        use.
        """
        key = (kind, scope)
        rate = self._rates.pop(key, None)
        if rate is None:
            rate = WindowedRate()
            self._forget_idle(now_ms)
        self._rates[key] = rate
        return rate

    def _forget_idle(self, now_ms: float) -> None:
        """Drop rates from the front that are idle, and the longest unused if there are too many."""
        while self._rates:
            key = next(iter(self._rates))
            if len(self._rates) < MAX_RATES and not self._rates[key].is_idle(now_ms):
                return
            del self._rates[key]

    # ── operations ────────────────────────────────────────────────────────────────────────────────

    def describe(
        self, components: Sequence[Component], *, strict: bool = False, principal: Principal = ANONYMOUS
    ) -> list[tuple[Entity, dict[str, float]]]:
        """Return the entities that have the parts asked for (strict: and no others), with their
        limits.

        Raises:
            InvalidArgument, UnsupportedVersion: the components make no filter.
            NotAuthorized: it needs DESCRIBE_CONFIGS on the cluster.
        """
        self._access.require_cluster(principal, Operation.DESCRIBE_CONFIGS)
        found = self._table.selected(check_filter(components), strict=strict)
        return [(entity, dict(sorted(values.items()))) for entity, values in found]

    async def alter(
        self, changes: Sequence[QuotaChange], *, validate_only: bool = False, principal: Principal = ANONYMOUS
    ) -> list[SparrowError | None]:
        """Change limits; return for each change None or why it was not made. Durable and in force
        when it returns.

        Raises:
            NotAuthorized: it needs ALTER_CONFIGS on the cluster.
            DiskFull, StorageFailed: no change was made.
        """
        with self._audit.act(
            principal,
            "quota.alter",
            ResourceType.CLUSTER,
            CLUSTER_NAME,
            entities=names([_entity_text(each) for each in changes]),
        ) as act:
            self._access.require_cluster(principal, Operation.ALTER_CONFIGS)
            if validate_only:
                act.discard()
            outcomes = await self._changes.carry_out(lambda: self._alter(changes, validate_only))
            act.items(zip(map(_entity_text, changes), outcomes, strict=True))
            return outcomes

    async def _alter(self, changes: Sequence[QuotaChange], validate_only: bool) -> list[SparrowError | None]:
        outcomes: list[SparrowError | None] = []
        altered: dict[Entity, dict[str, float]] = {}
        for change in changes:
            try:
                entity, values = _checked(change)
            except BadInput as error:
                outcomes.append(error)
                continue
            limits = altered.setdefault(entity, dict(self._table.get(entity)))
            limits.update({key: value for key, value in values.items() if value is not None})
            for key in [key for key, value in values.items() if value is None]:
                limits.pop(key, None)
            outcomes.append(None)
        if not validate_only:
            writes = [_write(entity, limits) for entity, limits in altered.items()]
            await self._changes.write(writes, lambda: self._replace(altered))
        return outcomes

    def _replace(self, altered: Mapping[Entity, Mapping[str, float]]) -> None:
        for entity, limits in altered.items():
            self._table.replace(entity, limits)
        self.has_limits = any(map(self._table.is_limited, QuotaKind))

    async def settle(self) -> None:
        """Wait for changes whose callers have gone away."""
        await self._changes.settle()


def _entity_text(change: QuotaChange) -> str:
    """Return an entity and its settings, as the audit names them: "user=alice
    producer_byte_rate".
    """
    entity = ",".join(f"{kind}={'<default>' if name is None else name}" for kind, name in change.entity)
    return f"{entity} {','.join(key for key, _ in change.values)}"


def _checked(change: QuotaChange) -> tuple[Entity, dict[str, float | None]]:
    entity = entity_of(change.entity)
    if len(encode_key(entity).encode()) > MAX_KEY_BYTES:
        raise InvalidArgument(
            f"The name of a quota entity is longer than {MAX_KEY_BYTES} bytes; use a shorter one."
        )
    return entity, check_values(entity, change.values)


_decode_key = msgspec.json.Decoder(tuple[tuple[str, str | None], ...]).decode
_decode_value = msgspec.json.Decoder(dict[str, float]).decode


def encode_key(entity: Entity) -> str:
    """Return the key of a quota's entry."""
    return msgspec.json.encode(entity).decode()


def _write(entity: Entity, limits: dict[str, float]) -> Write:
    key = encode_key(entity)
    return Put(KIND, key, msgspec.json.encode(limits)) if limits else Delete(KIND, key)


def _decode(entry: Entry) -> tuple[Entity, dict[str, float]]:
    try:
        return entity_of(_decode_key(entry.key)), _decode_value(entry.value)
    except (msgspec.DecodeError, BadInput) as error:
        raise DirectoryUnreadable(
            f"The meta store holds a quota that cannot be read, {entry.key!r}: {error}. Put back a "
            "backup of the data directory, or"
            " delete this entry."
        ) from error
