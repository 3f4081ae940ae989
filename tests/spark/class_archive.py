"""An archive of the classes that Spark loads, with which a JVM starts in half the time.

Dozens of JVMs are started by the tests. `make test` makes the archive once and keeps it beside the
packages; tests run without it as well, but longer. A JVM ignores an archive that is not of its
classes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zlib
from pathlib import Path

from tests.spark.home import spark_home

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Options of a JVM that compiles no more than pays within half a minute."""
_TIMEOUT_S = 600
_NAME = "spark-classes-"


def java() -> str:
    """Return the Java that Spark would run; "" when there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    return found or ""


def path() -> Path:
    """Return where the archive of this Java and this Spark is, or would be."""
    program = Path(java()).resolve()
    key = f"{program} {program.stat().st_mtime_ns} {spark_home()}"
    return Path(sys.prefix) / f"{_NAME}{zlib.crc32(key.encode()):08x}.jsa"


def options() -> str:
    """Return the options with which a JVM uses the archive; "" when there is none."""
    if not java() or not path().exists():
        return ""
    return f'-XX:SharedArchiveFile="{path()}" -Xlog:cds*=off'


def short_lived() -> str:
    """Return the options of a JVM of half a minute, for SPARK_SUBMIT_OPTS."""
    return f"{SHORT_LIVED} {options()}".strip()


def make() -> None:
    """Make the archive if it is missing. A JVM writes it when it ends."""
    if not java() or path().exists():
        return
    for old in path().parent.glob(f"{_NAME}*"):
        old.unlink()
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder, "classes.jsa")
        subprocess.run(
            [sys.executable, "-m", "tests.spark.class_archive", "load"],
            cwd=folder,
            env={
                **os.environ,
                "SPARK_HOME": spark_home(),  # the archive knows the paths of its classes
                "PYTHONPATH": os.pathsep.join(sys.path),
                "SPARK_SUBMIT_OPTS": f"{SHORT_LIVED} -XX:ArchiveClassesAtExit={written} -Xlog:cds*=off",
            },
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_TIMEOUT_S,
            check=False,
        )
        if written.exists():
            shutil.move(written, path())


def _load_classes() -> None:
    """Run queries of the kinds that the tests have, and end the JVM in order."""
    from pyspark import SparkContext

    import sparrow.spark

    conf = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
    }
    session = sparrow.spark.session(name="classes", master="local[2]", conf=conf)
    session.sparkContext.setLogLevel("OFF")
    numbers = session.range(100).selectExpr(
        "id % 3 AS k", "CAST(id AS STRING) AS v", "current_timestamp() AS t"
    )
    numbers.groupBy("k").count().join(numbers, "k").orderBy("v").toPandas()
    numbers.mapInArrow(lambda batches: batches, numbers.schema).write.parquet("numbers")
    session.read.parquet("numbers").where("k > 1").collect()
    rows = session.readStream.schema(numbers.schema).parquet("numbers")
    sums = rows.withWatermark("t", "1 second").groupBy("k").count()
    for query, mode in ((rows, "append"), (sums, "complete")):
        writer = query.writeStream.format("memory").queryName(mode).outputMode(mode)
        writer.option("checkpointLocation", f"of-{mode}").trigger(
            availableNow=True
        ).start().awaitTermination()
    gateway = SparkContext._gateway
    assert gateway is not None
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(_TIMEOUT_S)


if __name__ == "__main__":
    _load_classes() if sys.argv[1:] == ["load"] else make()
