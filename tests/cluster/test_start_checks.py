"""The checks of both engines at a start: each failure is one sentence with the remedy, and no
sentence has a secret.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparrow.base.clock import ManualClock, SystemClock
from sparrow.base.errors import InvalidConfig
from sparrow.cluster import postgres as postgres_ledger
from sparrow.cluster.errors import LedgerUnavailable
from sparrow.cluster.ledger_model import LedgerState, MemoryLedger
from sparrow.cluster.objects_model import MemoryObjects
from sparrow.cluster.postgres import PostgresLedger
from sparrow.server import cluster
from sparrow.server.cluster import IDENTITY_KEY, check_engines
from tests.cluster.conftest import SECRET
from tests.cluster.postgres_server import PASSWORD, PostgresServer


async def test_a_bucket_belongs_to_one_cluster() -> None:
    objects = MemoryObjects()
    first, second = MemoryLedger(LedgerState()), MemoryLedger(LedgerState())
    check = await check_engines(first, objects)
    assert check.cluster_id == (await check_engines(first, objects)).cluster_id
    with pytest.raises(InvalidConfig, match=r"belongs to the cluster .* of its own"):
        await check_engines(second, objects)


@pytest.mark.parametrize(("seconds", "direction"), [(-30, "ahead of"), (30, "behind")])
async def test_clocks_that_differ_are_refused(seconds: int, direction: str) -> None:
    clock = ManualClock(SystemClock().wall_ms() + seconds * 1000)
    with pytest.raises(InvalidConfig, match=f"{direction} that of .* NTP"):
        await check_engines(MemoryLedger(LedgerState(clock)), MemoryObjects())


@pytest.mark.parametrize("late_ms", [0, 400])
@pytest.mark.parametrize(
    ("ahead_ms", "is_refused"), [(-1001, True), (-1000, False), (1000, False), (1001, True)]
)
async def test_clocks_may_differ_by_a_second(
    monkeypatch: pytest.MonkeyPatch, ahead_ms: int, late_ms: int, *, is_refused: bool
) -> None:
    """The answer of the ledger may take `late_ms`, which count for the machine."""
    ledger_ms = 1_800_000_000_000
    sent_ms = ledger_ms + ahead_ms - (late_ms if ahead_ms < 0 else 0)
    times = iter([sent_ms, sent_ms + late_ms])
    machine = SimpleNamespace(time_ns=lambda: next(times) * 1_000_000)
    monkeypatch.setattr(cluster, "time", machine)
    checking = check_engines(MemoryLedger(LedgerState(ManualClock(ledger_ms))), MemoryObjects())
    if is_refused:
        with pytest.raises(InvalidConfig, match="NTP"):
            await checking
    else:
        assert (await checking).now_ms == ledger_ms


async def test_a_store_that_cannot_be_used_is_refused() -> None:
    objects = MemoryObjects()
    objects.is_down = True
    with pytest.raises(InvalidConfig, match="object store cannot be used"):
        await check_engines(MemoryLedger(LedgerState()), objects)
    state = LedgerState()
    state.is_down = True
    with pytest.raises(LedgerUnavailable):
        await check_engines(MemoryLedger(state), MemoryObjects())


class ForgetfulObjects(MemoryObjects):
    """A store that reads what was there before."""

    async def put(self, key: str, parts: Sequence[bytes | memoryview]) -> None:
        await super().put(key, parts if key not in self.content else [self.content[key]])


async def test_a_store_that_gives_other_bytes_is_refused() -> None:
    objects = ForgetfulObjects({"probe": b"old"})
    with pytest.raises(InvalidConfig, match=r"gave other bytes .* reads what it wrote"):
        await check_engines(MemoryLedger(LedgerState()), objects)


class NamedObjects(MemoryObjects):
    """A store with a place of its own."""

    def __init__(self, location: str) -> None:
        super().__init__()
        self._place = location

    @property
    def location(self) -> str:
        return self._place


async def test_a_cluster_keeps_its_objects_in_one_place() -> None:
    state = LedgerState()
    right, wrong = NamedObjects("s3://right"), NamedObjects("s3://wrong")
    await check_engines(MemoryLedger(state), right)
    with pytest.raises(InvalidConfig, match=r"has its objects in s3://right, and s3://wrong has none"):
        await check_engines(MemoryLedger(state), wrong)
    assert IDENTITY_KEY not in wrong.content
    del right.content[IDENTITY_KEY]  # a start that was killed between the two notes
    await check_engines(MemoryLedger(state), right)
    moved = NamedObjects("s3://moved")
    moved.content.update(right.content)
    await check_engines(MemoryLedger(state), moved)


@pytest.mark.slow
async def test_an_old_server_is_refused(ledger_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_ledger, "MIN_VERSION", 99)
    ledger = PostgresLedger(ledger_url)
    with pytest.raises(InvalidConfig, match=r"has version \d+; a cluster needs 99 or later: upgrade it"):
        await ledger.open()
    await ledger.close()


@pytest.mark.slow
async def test_a_user_without_the_right_to_make_tables_is_refused(
    postgres: PostgresServer, ledger_url: str
) -> None:
    database = ledger_url.rpartition("/")[2]
    postgres.execute(database, f"CREATE ROLE weak_{database} LOGIN PASSWORD 'weak'")
    ledger = PostgresLedger(ledger_url.replace(f"postgres:{PASSWORD}@", f"weak_{database}:weak@"))
    with pytest.raises(InvalidConfig, match=r"cannot make the tables .* grant CREATE on the database"):
        await ledger.open()
    await ledger.close()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ledger", "objects", "code", "sentence"),
    [
        ("", "file://{path}/objects?x=1", 78, "cluster.ledger is not"),
        ("{ledger}_missing", "file://{path}/objects", 78, "check user, password and database"),
        ("{ledger}", "s3://bucket/p?endpoint=http://127.0.0.1:1&access_key_id=k&secret_access_key={secret}",
         78, "the object store cannot be used: writing s3://bucket/p/probe failed"),
        ("{ledger}", "ftp://u:{secret}@host/p", 78, "it is s3://BUCKET/PREFIX"),
        ("postgresql://u:{secret}@127.0.0.1:1/d", "file://{path}/objects",
         69, "127.0.0.1:1/d does not answer"),
    ],
)  # fmt: skip
def test_a_start_that_is_refused_says_why_in_one_sentence_without_secrets(
    tmp_path: Path, ledger_url: str, ledger: str, objects: str, code: int, sentence: str
) -> None:
    pytest.importorskip("obstore")
    values = {"ledger": ledger_url, "path": tmp_path, "secret": SECRET}
    environment = {
        **os.environ,
        "SPARROW_LEDGER": ledger.format(**values),
        "SPARROW_OBJECTS": objects.format(**values),
        "SPARROW_NATIVE_PORT": "0",
        "SPARROW_KAFKA_PORT": "off",
        "SPARROW_HTTP_PORT": "off",
        "SPARROW_LOG_LEVEL": "debug",
    }
    command = [sys.executable, "-c", "import sys; from sparrow.cli import main; sys.exit(main())", "serve"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=120, env=environment, check=False
    )
    assert done.returncode == code, done.stderr
    (shown,) = [line for line in done.stderr.splitlines() if line.startswith("sparrow: ")]
    assert sentence in shown
    assert SECRET not in done.stdout + done.stderr
    assert PASSWORD not in done.stdout + done.stderr
