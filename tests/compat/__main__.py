"""`make compat`: clients and tools that cannot come from PyPI, against a real broker.

It needs Java 17 and Maven Central (Kafka's own jars), Go and its module proxy (franz-go, Sarama,
kafka-go), Node and npm (KafkaJS); that is why it is no part of `make test`. What cannot run says so
in one line and counts as skipped.

Exit codes: 0, all that could run passed; 1, something failed; 3, nothing could run.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.peers import kafka
from bench.peers.daemon import NotInstalled
from sparrow.testing import broker
from tests.compat.programs import HERE, JavaPrograms, run, tool

DUMP = "kafka.tools.DumpLogSegments"


def java(work: Path) -> str:
    """Run Kafka's Java clients, then Kafka's dump tool on the segments that Sparrow wrote for
    them.
    """
    names = ("Compat", "ShareCompat", "TransactionCompat")
    programs = JavaPrograms.compiled([HERE / "java" / f"{each}.java" for each in names], work)
    data = work / "data"
    with broker(data_dir=str(data)) as running:
        said = "".join(run(*programs.command(each, running.kafka)) for each in names)
    return said + _dump(programs, data)


def _dump(programs: JavaPrograms, data: Path) -> str:
    """Have Kafka read every segment record by record and compare its indexes."""
    segments = sorted(str(each) for each in data.rglob("*.log") if each.stat().st_size)
    if not segments:
        raise AssertionError(f"no segments under {data}")
    indexes = [index for each in segments for index in _indexes(each)]
    files = ",".join(segments + indexes)
    said = run(*programs.command(DUMP, "--deep-iteration", "--print-data-log", "--files", files))
    wrong = [line for line in said.splitlines() if "isvalid: false" in line or "ismatch" in line.lower()]
    records = sum(line.startswith("| offset:") for line in said.splitlines())
    if wrong or not records:
        raise AssertionError(f"Kafka's dump tool found {records} records and:\n" + "\n".join(wrong[:20]))
    return f"dump: Kafka's tool read {records} records in {len(segments)} segments\n"


def _indexes(segment: str) -> list[str]:
    beside = [segment.removesuffix(".log") + suffix for suffix in (".index", ".timeindex")]
    return [each for each in beside if Path(each).exists()]


def kafka_writes(work: Path) -> str:
    """Check that Sparrow reads segments that Kafka's own broker wrote."""
    with kafka.node(work) as node:
        _produce(node.bootstrap, 300)
    segment = node.partition("compat", 0) / "00000000000000000000.log"
    said = run(sys.executable, "-m", "sparrow", "log", "dump", "--records", "--json", str(segment))
    records = said.count('"value"')
    if records != 300:
        raise AssertionError(
            f"sparrow log dump found {records} of 300 records that Kafka wrote:\n{said[:2000]}"
        )
    return f"kafka: Sparrow read {records} records that Kafka wrote\n"


def _produce(bootstrap: str, count: int) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})
    for number in range(count):
        producer.produce("compat", f"value {number}".encode(), partition=0)
    left = producer.flush(60)
    if left:
        raise AssertionError(f"Kafka did not take {left} records")


def go(work: Path) -> str:
    """Run franz-go (groups of both protocols, transactions), Sarama and kafka-go."""
    compiler = tool("go")
    program = work / "compat"
    try:
        run(compiler, "build", "-o", str(program), ".", directory=HERE / "go")
    except AssertionError as error:
        if "proxy.golang.org" in str(error) or "dial tcp" in str(error):
            raise NotInstalled("Go's module proxy cannot be reached") from error
        raise
    with broker(data_dir=str(work / "data")) as running:
        return run(str(program), running.kafka)


def node(work: Path) -> str:
    """Run KafkaJS."""
    executable, npm = tool("node"), tool("npm")
    shutil.copytree(HERE / "node", work, dirs_exist_ok=True)
    try:
        run(npm, "install", "--no-audit", "--no-fund", directory=work)
    except AssertionError as error:
        raise NotInstalled(f"KafkaJS cannot be fetched from npm: {error}") from error
    with broker(data_dir=str(work / "data")) as running:
        return run(executable, "kafkajs.js", running.kafka, directory=work)


PARTS: dict[str, Callable[[Path], str]] = {"java": java, "kafka": kafka_writes, "go": go, "node": node}


def main(wanted: list[str]) -> int:
    """Run the parts that are named, or all."""
    passed = failed = 0
    for name, part in PARTS.items():
        if wanted and name not in wanted:
            continue
        with tempfile.TemporaryDirectory() as directory:
            try:
                print(part(Path(directory)), end="", flush=True)
                passed += 1
            except NotInstalled as error:
                print(f"{name}: skipped: {error}", flush=True)
            except (AssertionError, subprocess.TimeoutExpired) as error:
                print(f"{name}: FAILED: {error}", flush=True)
                failed += 1
    if failed:
        return 1
    return 0 if passed else 3


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
