"""Quotas: durable when set, in force at once, counted for the clients that share them."""

from __future__ import annotations

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DirectoryUnreadable, DiskFull, InvalidArgument, NotAuthorized
from sparrow.broker.access.access import Access
from sparrow.broker.access.acl_store import StoredAuthorizer
from sparrow.broker.access.authz import Principal
from sparrow.broker.quotas.rules import Component, Match, QuotaChange, QuotaKind
from sparrow.broker.quotas.service import KIND, QuotaService
from sparrow.meta.memory import MemoryMetaStore
from sparrow.meta.store import Put

ALICE, BOB = Principal("alice"), Principal("bob")
ROOT = Principal("root")
P, F, R = QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.REQUEST
KB = 1000.0


async def loaded(
    meta: MemoryMetaStore, clock: ManualClock | None = None, *, open_to_all: bool = True
) -> QuotaService:
    administrators = ["User:root", "User:ANONYMOUS"] if open_to_all else ["User:root"]
    authorizer = StoredAuthorizer(administrators)
    quotas = QuotaService(meta, clock or ManualClock(), Access(authorizer))
    await quotas.load()
    return quotas


def change(*parts: tuple[str, str | None], **values: float | None) -> QuotaChange:
    return QuotaChange(parts, tuple(values.items()))


async def test_quotas_are_in_force_when_set_and_after_a_restart() -> None:
    meta = MemoryMetaStore()
    quotas = await loaded(meta)
    assert quotas.record(P, ALICE, "app", 1e9) == 0
    assert not quotas.has_limits
    assert await quotas.alter([change(("user", "alice"), producer_byte_rate=KB)]) == [None]
    for each in (quotas, await loaded(meta)):
        assert each.has_limits
        assert each.describe([]) == [((("user", "alice"),), {"producer_byte_rate": KB})]
        assert each.record(P, ALICE, "app", 20 * KB) == 10_000
        assert each.record(P, BOB, "app", 20 * KB) == 0
        assert each.record(F, ALICE, "app", 20 * KB) == 0


async def test_setting_adds_and_removing_takes_away_until_nothing_is_left() -> None:
    meta = MemoryMetaStore()
    quotas = await loaded(meta)
    both = [("user", "a"), ("client-id", None)]
    await quotas.alter([change(*both, producer_byte_rate=KB, request_percentage=50.0)])
    await quotas.alter([change(*reversed(both), consumer_byte_rate=KB, producer_byte_rate=None)])
    assert quotas.describe([])[0][1] == {"consumer_byte_rate": KB, "request_percentage": 50.0}
    await quotas.alter(
        [change(*both, consumer_byte_rate=None, request_percentage=None, producer_byte_rate=None)]
    )
    assert quotas.describe([]) == []
    assert not quotas.has_limits
    assert await meta.scan(KIND) == []


async def test_bad_changes_fail_alone_and_a_validation_changes_nothing() -> None:
    quotas = await loaded(MemoryMetaStore())
    changes = [
        change(("user", "a"), producer_byte_rate=KB),
        change(("user", "a"), speed=KB),
        change(("user", "\0" * 2000), producer_byte_rate=KB),
    ]
    for validate_only in (True, False):
        outcomes = await quotas.alter(changes, validate_only=validate_only)
        assert [type(each) for each in outcomes] == [type(None), InvalidArgument, InvalidArgument]
        assert len(quotas.describe([])) == (0 if validate_only else 1)


async def test_two_changes_of_one_entity_in_one_request_both_hold() -> None:
    quotas = await loaded(MemoryMetaStore())
    await quotas.alter(
        [change(("user", "a"), producer_byte_rate=KB), change(("user", "a"), consumer_byte_rate=KB)]
    )
    assert quotas.describe([])[0][1] == {"consumer_byte_rate": KB, "producer_byte_rate": KB}


async def test_a_quota_that_could_not_be_stored_is_not_in_force() -> None:
    meta = MemoryMetaStore()
    quotas = await loaded(meta)
    meta.full = True
    with pytest.raises(DiskFull):
        await quotas.alter([change(("user", "alice"), producer_byte_rate=KB)])
    assert quotas.record(P, ALICE, "app", 1e9) == 0


async def test_a_default_is_a_limit_for_each_and_a_users_quota_is_shared_by_his_clients() -> None:
    quotas = await loaded(MemoryMetaStore())
    await quotas.alter([change(("client-id", None), producer_byte_rate=KB)])
    assert quotas.record(P, ALICE, "one", 10 * KB) == 0
    assert quotas.record(P, ALICE, "two", 10 * KB) == 0
    assert quotas.record(P, BOB, "one", 10 * KB) > 0, "one client id, for all users"
    await quotas.alter([change(("user", None), producer_byte_rate=KB)])
    assert quotas.record(P, ALICE, "one", 10 * KB) == 0
    assert quotas.record(P, ALICE, "two", 10 * KB) > 0, "one user, whatever his clients are called"
    assert quotas.record(P, BOB, "one", 10 * KB) == 0


async def test_time_brings_the_rate_down_again() -> None:
    clock = ManualClock()
    quotas = await loaded(MemoryMetaStore(), clock)
    await quotas.alter([change(("user", "alice"), consumer_byte_rate=KB)])
    assert quotas.record(F, ALICE, "app", 30 * KB) == 20_000
    clock.advance(20)
    assert quotas.record(F, ALICE, "app", KB) == 0


async def test_withdrawn_usage_does_not_count() -> None:
    quotas = await loaded(MemoryMetaStore())
    await quotas.alter([change(("user", "alice"), consumer_byte_rate=KB)])
    assert quotas.record(F, ALICE, "app", 30 * KB) > 0
    quotas.unrecord(F, ALICE, "app", 30 * KB)
    assert quotas.record(F, ALICE, "app", 10 * KB) == 0


async def test_the_most_that_a_quota_can_give_at_a_time_is_ten_seconds_worth() -> None:
    quotas = await loaded(MemoryMetaStore())
    assert quotas.max_in_window(F, ALICE, "app") is None
    await quotas.alter([change(("user", "alice"), consumer_byte_rate=KB)])
    assert quotas.max_in_window(F, ALICE, "app") == 10 * KB
    assert quotas.max_in_window(F, BOB, "app") is None


async def test_no_client_is_throttled_for_its_requests_for_longer_than_a_second_at_a_time() -> None:
    quotas = await loaded(MemoryMetaStore())
    await quotas.alter([change(("user", "alice"), request_percentage=1.0)])
    assert quotas.record(R, ALICE, "app", 100 * KB) == 1000


async def test_client_ids_that_somebody_makes_up_do_not_fill_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sparrow.broker.quotas.service.MAX_RATES", 50)
    clock = ManualClock()
    quotas = await loaded(MemoryMetaStore(), clock)
    await quotas.alter([change(("client-id", None), producer_byte_rate=KB)])
    for number in range(500):
        quotas.record(P, ALICE, f"made-up-{number}", 1)
        quotas.record(P, ALICE, "busy", 1)
    assert len(quotas._rates) <= 50
    clock.advance(60)
    quotas.record(P, ALICE, "new", 1)
    assert len(quotas._rates) == 1


async def test_quotas_need_rights_on_the_clusters_configuration() -> None:
    quotas = await loaded(MemoryMetaStore(), open_to_all=False)
    with pytest.raises(NotAuthorized, match="AlterConfigs Cluster"):
        await quotas.alter([change(("user", "alice"), producer_byte_rate=KB)], principal=ALICE)
    with pytest.raises(NotAuthorized, match="DescribeConfigs Cluster"):
        quotas.describe([Component("user", Match.ANY)], principal=ALICE)
    await quotas.alter([change(("user", "alice"), producer_byte_rate=KB)], principal=ROOT)
    assert len(quotas.describe([Component("user", Match.ANY)], principal=ROOT)) == 1


@pytest.mark.parametrize(
    ("key", "value"),
    [('[["user","a"]]', b"no number"), ('[["group","a"]]', b'{"producer_byte_rate": 1}'), ("user:a", b"{}")],
)
async def test_a_quota_that_cannot_be_read_stops_the_start(key: str, value: bytes) -> None:
    meta = MemoryMetaStore()
    await meta.write([Put(KIND, key, value)])
    with pytest.raises(DirectoryUnreadable):
        await loaded(meta)
