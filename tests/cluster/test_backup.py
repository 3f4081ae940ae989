"""A backup of PostgreSQL and a later copy of the objects are a cluster again, at another place."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from pathlib import Path

import pytest

import sparrow
from sparrow.cli import main
from tests.cluster.brokers import BrokerProcess
from tests.cluster.postgres_server import PostgresServer, find_binaries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


async def publish(url: str, numbers: range) -> None:
    async with sparrow.connect(url) as client:
        for number in numbers:
            await client.publish("orders", b"%d" % number + bytes(100_000), partition=0)


async def values(url: str) -> list[int]:
    found: list[int] = []
    async with sparrow.connect(url) as client:
        end = (await client.admin.describe_topic("orders")).partitions[0].end_offset
        async with client.subscribe("orders", start="beginning") as messages:
            async for each in messages:
                found.append(int((each.value or b"").rstrip(b"\0")))
                if each.offset + 1 == end:
                    break
    return found


def test_a_backup_that_was_taken_while_the_owner_worked_is_restored_elsewhere(
    tmp_path: Path,
    postgres: PostgresServer,
    ledger_url: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    broker = BrokerProcess(tmp_path, "a", ledger_url, f"file://{tmp_path}/objects")
    restored = None
    try:
        ready = broker.wait_until_ready()
        asyncio.run(publish(ready["url"], range(20)))
        programs = find_binaries()
        dump = tmp_path / "dump"
        command = [
            f"{programs}/pg_dump",
            "--schema",
            "sparrow",
            "--format",
            "custom",
            "--file",
            str(dump),
            ledger_url,
        ]
        subprocess.run(command, check=True)
        asyncio.run(publish(ready["url"], range(20, 25)))
        shutil.copytree(tmp_path / "objects", tmp_path / "copy")
        broker.kill()
        shutil.rmtree(tmp_path / "objects")
        url = postgres.create(f"{ledger_url.rpartition('/')[2]}_restored")
        subprocess.run([f"{programs}/pg_restore", "--dbname", url, str(dump)], check=True)
        monkeypatch.setenv("SPARROW_LEDGER", url)
        monkeypatch.setenv("SPARROW_OBJECTS", f"file://{tmp_path}/copy")
        assert main(["cluster", "verify"]) == 0
        assert ": good" in capsys.readouterr().out
        restored = BrokerProcess(tmp_path, "b", url, f"file://{tmp_path}/copy")
        ready = restored.wait_until_ready()
        assert asyncio.run(values(ready["url"])) == list(range(20))
        asyncio.run(publish(ready["url"], range(30, 33)))
        assert asyncio.run(values(ready["url"])) == [*range(20), *range(30, 33)]
    finally:
        broker.end()
        if restored is not None:
            restored.end()
