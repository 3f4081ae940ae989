"""A cluster under load is killed, stopped, cut off and its engines fail, at seeded moments; then
the promises of docs/guarantees.md are checked.

`make cluster-crash ROUNDS=200` runs more; SPARROW_CLUSTER_SEED repeats a run.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.peers.daemon import NotInstalled
from tests.cluster.crash.cluster import Cluster
from tests.cluster.crash.faults import FAULTS, deck, kill
from tests.cluster.crash.s3_server import start_s3, why_not
from tests.cluster.postgres_server import start_postgres
from tests.crash.faults import torment
from tests.crash.loads import Load
from tests.crash.loads.http import HttpPublisher
from tests.crash.loads.java_client import JavaClient
from tests.crash.loads.kafka import KafkaProducer, KafkaTransactions
from tests.crash.loads.native import NativeGroup, NativeProducer
from tests.crash.loads.queues import ParentedWorkers, QueueWorkers
from tests.crash.test_every_frontend import broken_promises

ROUNDS = int(os.environ.get("SPARROW_CLUSTER_ROUNDS", "1"))
SEED = int(os.environ.get("SPARROW_CLUSTER_SEED", "1"))
ONE_RUN = len(FAULTS)
"""Rounds of one cluster, with one seed."""
RUNS = [min(ONE_RUN, ROUNDS - start) for start in range(0, ROUNDS, ONE_RUN)]
pytestmark = pytest.mark.slow


def loads(seed: int, directory: Path) -> Sequence[Load]:
    """Return the loads; Java's only where there is Java.

    `KafkaCopies` is not among them: `send_offsets_to_transaction` does not return when the group's
    coordinator is another broker than before (librdkafka #5511).
    """
    return [
        NativeProducer(),
        NativeGroup(),
        KafkaProducer(),
        KafkaTransactions(seed),
        HttpPublisher(),
        QueueWorkers(),
        ParentedWorkers(seed),
        *java(directory / "java", seed),
    ]


def java(directory: Path, seed: int) -> Sequence[Load]:
    """Return the load of the Java client, or none: print why it is missing."""
    try:
        return [JavaClient(directory, seed)]
    except NotInstalled as reason:
        print(f"\nthe rounds run without the Java client: {reason}")
        return []


def test_rounds_without_java_say_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert java(tmp_path / "java", 1) == []
    assert "the rounds run without the Java client: java is not installed" in capsys.readouterr().out


def test_rounds_without_an_s3_server_are_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("PATH", "HOME", "SPARROW_VERSITYGW"):
        monkeypatch.setenv(name, str(tmp_path / "missing"))
    monkeypatch.setattr("sys.path", [])
    monkeypatch.delitem(sys.modules, "moto", raising=False)
    reason = "neither versitygw nor moto is installed; for moto: make setup"
    assert why_not() == reason
    with pytest.raises(pytest.skip.Exception, match=reason):
        start_s3(tmp_path / "s3")
    assert not (tmp_path / "s3").exists()


@pytest.mark.timeout(240 + 60 * ONE_RUN)
@pytest.mark.parametrize("run", range(len(RUNS)))
async def test_promises_are_kept_whatever_fails(run: int, tmp_path: Path) -> None:
    pytest.importorskip("asyncpg")
    pytest.importorskip("obstore")
    s3 = start_s3(tmp_path / "s3")
    try:
        postgres = start_postgres()
    except BaseException:  # skipped, too
        s3.stop()
        raise
    seed = SEED + run
    # Every second run uploads all batches; in the others nearly all are small enough for rows.
    cluster = Cluster(tmp_path, postgres, s3, "2 MiB" if seed % 2 else "0")
    try:
        chosen = loads(seed, tmp_path) if ROUNDS > 1 else [NativeProducer(), QueueWorkers(), HttpPublisher()]
        postgres.create("crash")
        await cluster.open("crash")
        faults = deck if ROUNDS > 1 else lambda _: iter([kill])
        done = await torment(cluster, chosen, RUNS[run], seed, chosen=faults)  # type: ignore[arg-type]
        print(f"seed {seed}, {s3.name}: {dict(done)}; { ({load.name: load.progress for load in chosen}) }")
        print("without a broker (s):", " ".join(f"{each:.1f}" for each in sorted(cluster.takeovers)))
        broken = [await broken_promises(load, cluster) for load in chosen]  # type: ignore[arg-type]
        assert [each for each in broken if each] == []
    finally:
        await cluster.close()
        s3.stop()
        postgres.remove()
