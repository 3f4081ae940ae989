"""Both ledgers keep the contract; PostgreSQL is checked at the start."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparrow.base.clock import ManualClock
from sparrow.base.errors import DiskFull, InvalidConfig, NewerFormat
from sparrow.cluster.errors import LedgerUnavailable, OutcomeUnknown
from sparrow.cluster.ledger import Commit, Ledger
from sparrow.cluster.ledger_model import LedgerFaults, LedgerState, MemoryLedger
from tests.cluster.postgres_server import PASSWORD, start_postgres
from tests.conformance.ledger import ADDRESSES, AgeNodes, Connect, LedgerConformance, joined, taken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.cluster.postgres_server import PostgresServer


class TestMemoryLedger(LedgerConformance):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def connect(self, clock: ManualClock) -> Connect:
        state = LedgerState(clock)

        async def connect() -> Ledger:
            return MemoryLedger(state)

        return connect

    @pytest.fixture
    def age_nodes(self, clock: ManualClock) -> AgeNodes:
        async def age() -> None:
            clock.advance(11)

        return age


@pytest.mark.slow
class TestPostgresLedger(LedgerConformance):
    @pytest.fixture
    async def connect(self, ledger_url: str) -> AsyncIterator[Connect]:
        from sparrow.cluster.postgres import PostgresLedger

        made = []

        async def connect() -> Ledger:
            ledger = PostgresLedger(ledger_url)
            await ledger.open()
            made.append(ledger)
            return ledger

        yield connect
        for each in made:
            await each.close()

    @pytest.fixture
    def age_nodes(self, postgres: PostgresServer, ledger_url: str) -> AgeNodes:
        async def age() -> None:
            database = ledger_url.rpartition("/")[2]
            await asyncio.to_thread(
                postgres.execute,
                database,
                "UPDATE sparrow.node SET expires_at = expires_at - interval '11 s'",
            )

        return age


async def outcomes(seed: int) -> list[str]:
    state = LedgerState(ManualClock())
    quiet = MemoryLedger(state)
    epoch = (await taken(quiet, await joined(quiet))).epoch
    ledger = MemoryLedger(state, LedgerFaults(seed, lost_requests=0.2, lost_responses=0.2, disk_full=0.1))
    found = []
    for _ in range(60):
        try:
            found.append(str(await ledger.commit(0, epoch, Commit(state.shards[0].seq + 1, 0, b"m", b"b"))))
        except (OutcomeUnknown, DiskFull) as error:
            found.append(type(error).__name__)
    return [*found, str(state.shards[0].seq)]


async def test_the_same_seed_gives_the_same_faults() -> None:
    first = await outcomes(3)
    assert first == await outcomes(3)
    assert set(first[:-1]) == {"True", "OutcomeUnknown", "DiskFull"}
    assert first.count("True") < int(first[-1]) < 60 - first.count("DiskFull")


async def test_a_model_that_is_down_answers_nothing() -> None:
    ledger = MemoryLedger(LedgerState(ManualClock()))
    node = await joined(ledger)
    ledger.state.is_down = True
    with pytest.raises(LedgerUnavailable):
        await ledger.renew(node, 1000, ADDRESSES)
    with pytest.raises(OutcomeUnknown):
        await ledger.commit(0, 1, Commit(1, 0))


# ── PostgreSQL ──


@pytest.mark.slow
async def test_many_nodes_make_the_tables_once(ledger_url: str) -> None:
    from sparrow.cluster.postgres import PostgresLedger

    ledgers = [PostgresLedger(ledger_url) for _ in range(6)]
    checks = await asyncio.gather(*(each.open() for each in ledgers))
    assert len({check.cluster_id for check in checks}) == 1
    assert "no synchronous standby" in checks[0].warnings[0]
    for each in ledgers:
        await each.close()


@pytest.mark.slow
async def test_tables_of_a_later_sparrow_are_refused(postgres: PostgresServer, ledger_url: str) -> None:
    from sparrow.cluster.postgres import PostgresLedger

    ledger = PostgresLedger(ledger_url)
    await ledger.open()
    postgres.execute(ledger_url.rpartition("/")[2], "INSERT INTO sparrow.migration (number) VALUES (999)")
    with pytest.raises(NewerFormat, match="have version 999"):
        await ledger.open()
    await ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synchronous_commit", "full_page_writes", "fsync"])
async def test_a_server_that_forgets_is_refused(postgres: PostgresServer, ledger_url: str, name: str) -> None:
    from sparrow.cluster.postgres import PostgresLedger

    database = ledger_url.rpartition("/")[2]
    try:
        if name == "synchronous_commit":
            postgres.execute("postgres", f"ALTER DATABASE {database} SET synchronous_commit = off")
        else:
            postgres.execute("postgres", f"ALTER SYSTEM SET {name} = off")
            postgres.execute("postgres", "SELECT pg_reload_conf()")
        ledger = PostgresLedger(ledger_url)
        refusal = ""
        async with asyncio.timeout(10):
            while not refusal:  # the server takes a moment to read its configuration
                try:
                    await ledger.open()
                except InvalidConfig as error:
                    refusal = error.text
                await ledger.close()
        assert f"{name}=on" in refusal
        await ledger.close()
    finally:
        postgres.execute("postgres", f"ALTER SYSTEM RESET {name}")
        postgres.execute("postgres", "SELECT pg_reload_conf()")


@pytest.mark.slow
@pytest.mark.parametrize("wrong", ["password", "database", "port"])
async def test_no_error_has_the_password(postgres: PostgresServer, ledger_url: str, wrong: str) -> None:
    from sparrow.cluster.postgres import PostgresLedger

    url = {
        "password": postgres.url("postgres", "guessed-word"),
        "database": postgres.url("missing"),
        "port": ledger_url.replace(f":{postgres.port}/", ":1/"),
    }[wrong]
    ledger = PostgresLedger(url)
    with pytest.raises((InvalidConfig, LedgerUnavailable)) as raised:
        await ledger.open()
    shown = f"{raised.value!r} {raised.value.__cause__!r} {ledger.location}"
    assert PASSWORD not in shown
    assert "guessed-word" not in shown
    assert "127.0.0.1" in shown
    await ledger.close()


def test_only_refusals_that_are_certain_are_refusals() -> None:
    asyncpg = pytest.importorskip("asyncpg")
    from sparrow.cluster.errors import LedgerRefused
    from sparrow.cluster.postgres import refusal_of

    for unknown in (
        asyncpg.AdminShutdownError,
        asyncpg.ConnectionFailureError,
        asyncpg.ReadOnlySQLTransactionError,
        asyncpg.DeadlockDetectedError,
        asyncpg.PostgresIOError,
    ):
        assert refusal_of(unknown("it is so"), "db") is None
    assert isinstance(refusal_of(asyncpg.DiskFullError("it is so"), "db"), DiskFull)
    assert isinstance(refusal_of(asyncpg.UndefinedFunctionError("it is so"), "db"), LedgerRefused)


@pytest.mark.slow
async def test_a_server_that_only_reads_is_waited_for(postgres: PostgresServer, ledger_url: str) -> None:
    from sparrow.cluster.postgres import PostgresLedger

    ledger = PostgresLedger(ledger_url)
    await ledger.open()
    node = await joined(ledger)
    found = await taken(ledger, node)
    database = ledger_url.rpartition("/")[2]
    postgres.execute("postgres", f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    with pytest.raises(OutcomeUnknown):
        # the first connection for commits is opened now, as one is after a failover
        await ledger.commit(0, found.epoch, Commit(1, 0, b"m", b"b"))
    postgres.execute("postgres", f"ALTER DATABASE {database} RESET default_transaction_read_only")
    assert await ledger.commit(0, found.epoch, Commit(1, 0, b"m", b"b"))
    await ledger.close()


@pytest.mark.slow
async def test_commits_go_on_after_a_crash_of_the_server() -> None:
    pytest.importorskip("asyncpg")
    from sparrow.cluster.postgres import PostgresLedger

    server = await asyncio.to_thread(start_postgres)
    try:
        ledger = PostgresLedger(server.create("crash"))
        await ledger.open()
        node = await joined(ledger)
        found = await taken(ledger, node)
        assert await ledger.commit(0, found.epoch, Commit(1, 0, b"m", b"b"))
        await asyncio.to_thread(server.stop, signal.SIGQUIT)
        with pytest.raises(OutcomeUnknown):
            await ledger.commit(0, found.epoch, Commit(2, 0, b"m", b"b"))
        with pytest.raises(LedgerUnavailable):
            await ledger.renew(node, 1000, ADDRESSES)
        await asyncio.to_thread(server.start)
        assert await ledger.renew(node, 10_000, ADDRESSES)
        again = await taken(ledger, node)
        assert again.seq == 1
        assert not await ledger.commit(0, found.epoch, Commit(2, 0, b"m", b"b"))
        assert await ledger.commit(0, again.epoch, Commit(2, 0, b"m", b"b"))
        assert (await ledger.status()).nodes[0].is_connected
        await ledger.close()
    finally:
        await asyncio.to_thread(server.remove)


@pytest.mark.slow
@pytest.mark.parametrize("place", ["PGPASSWORD", "PGPASSFILE", "~/.pgpass"])
async def test_the_password_comes_from_a_variable_or_a_file(
    postgres: PostgresServer, ledger_url: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sparrow.cluster.postgres import PostgresLedger

    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("PGPASSWORD", raising=False)
    monkeypatch.delenv("PGPASSFILE", raising=False)
    file = tmp_path / (".pgpass" if place == "~/.pgpass" else "passwords")

    def give(password: str) -> None:
        if place == "PGPASSWORD":
            monkeypatch.setenv(place, password)
            return
        file.write_text(f"127.0.0.1:{postgres.port}:*:*:{password}\n")
        file.chmod(0o600)
        if place == "PGPASSFILE":
            monkeypatch.setenv(place, str(file))

    ledger = PostgresLedger(ledger_url.replace(f":{PASSWORD}@", "@"))
    give("guessed-word")
    with pytest.raises(InvalidConfig, match="check user, password and database") as raised:
        await ledger.open()
    assert "guessed-word" not in raised.value.text
    give(PASSWORD)
    assert (await ledger.open()).cluster_id
    await ledger.close()
