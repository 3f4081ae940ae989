"""What `sparrow.spark.session` sets, and what it leaves alone: without starting a JVM where that is possible."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparrow.spark
from sparrow.base.errors import InvalidArgument
from sparrow.spark.session import DAEMON_MODULE, LOCAL_FILE_SETTINGS, SETTINGS, active_session, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrow.testing.running import RunningBroker

DAEMON = "spark.python.daemon.module"


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is set from elsewhere."""
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS", "SPARK_CONF_DIR", "SPARK_HOME"):
        monkeypatch.delenv(name, raising=False)


def test_local_sessions_have_all_five_settings_and_clusters_those_of_python() -> None:
    assert (
        settings()
        == settings(master="local[2]")
        == settings(remote="local[*]")
        == SETTINGS | LOCAL_FILE_SETTINGS
    )
    assert settings(master="spark://main:7077") == SETTINGS
    assert settings(master="yarn", local_files=True) == SETTINGS | LOCAL_FILE_SETTINGS
    assert settings(master="local[*]", local_files=False) == SETTINGS
    assert settings(remote="sc://host:15002") == {}


def test_what_the_user_says_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert settings(conf={DAEMON: "mine.daemon", "a": True, "b": 2})[DAEMON] == "mine.daemon"
    assert settings(conf={"a": True, "b": 2}) == SETTINGS | LOCAL_FILE_SETTINGS | {"a": "true", "b": "2"}
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", f"--master yarn --conf {DAEMON}=mine.daemon pyspark-shell")
    assert settings() == {name: value for name, value in SETTINGS.items() if name != DAEMON}
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS")
    (tmp_path / "spark-defaults.conf").write_text(
        f"# ours\n\nspark.master  spark://main:7077\n{DAEMON}=x.y\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert settings() == {name: value for name, value in SETTINGS.items() if name != DAEMON}


def test_what_cannot_be_is_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidArgument, match="one of them"):
        sparrow.spark.session(master="local", remote="sc://x")
    with pytest.raises(InvalidArgument, match=r"spark\.x is \[1\]"):
        settings(conf={"spark.x": [1]})
    if active_session() is None:
        with pytest.raises(InvalidArgument, match="no Spark session"):
            sparrow.spark.register()
        monkeypatch.setenv("JAVA_HOME", "/nowhere")
        with pytest.raises(
            InvalidArgument, match=r"JAVA_HOME=/nowhere has no bin/java.*apt install openjdk-17"
        ):
            sparrow.spark.session()
        monkeypatch.delenv("JAVA_HOME")
        monkeypatch.setenv("PATH", "")
        with pytest.raises(InvalidArgument, match=r"no java in the PATH.*apt install"):
            sparrow.spark.session()


def test_importing_the_package_loads_neither_spark_nor_arrow_nor_pipelines() -> None:
    program = (
        "import sys, sparrow.spark as s; s.session; "
        "sys.exit(bool({'pyspark', 'pyarrow', 'numpy', 'sparrow.spark.pipelines'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["pyspark.worker", "pyspark.sql.worker.plan_data_source_read"])
def test_daemon_has_what_workers_need_in_one_thread_and_no_socket(module: str) -> None:
    program = f"""if True:
        import gc, json, os, sys
        from {DAEMON_MODULE} import preload
        preload({module!r})
        opened = [os.readlink(f"/proc/self/fd/{{fd}}") for fd in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{{fd}}")]
        print(json.dumps([
            [name for name in ("pyarrow", "numba", {module!r}, "sparrow.spark.datasource") if name in sys.modules],
            gc.get_freeze_count() > 10_000,
            len(os.listdir("/proc/self/task")),
            [path for path in opened if path.startswith("socket")],
        ]))
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    loaded, is_frozen, threads, sockets = json.loads(done.stdout)
    kernels = ["numba"] if module == "pyspark.worker" else []
    assert loaded == ["pyarrow", *kernels, module, "sparrow.spark.datasource"]
    assert (is_frozen, threads, sockets) == (True, 1, [])
    assert done.stderr == ""


def test_what_cannot_be_loaded_does_not_stop_the_daemon() -> None:
    program = f"from {DAEMON_MODULE} import _load; _load('no.such.module')"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert "no.such.module is not preloaded" in done.stderr


def test_session_has_the_settings_and_its_workers_come_out_of_the_daemon(spark: SparkSession) -> None:
    conf = spark.sparkContext.getConf()
    for name, value in (SETTINGS | LOCAL_FILE_SETTINGS).items():
        assert conf.get(name) == value
    assert active_session() is sparrow.spark.session() is spark

    def look(_: object) -> list[object]:
        import gc
        import sys

        with open("/proc/self/cmdline", encoding="utf-8") as file:
            command = file.read().split("\0")
        return [command[2], gc.get_freeze_count() > 10_000, sys.executable]

    (found,) = spark.sparkContext.parallelize([0], 1).map(look).collect()
    assert found == [DAEMON_MODULE, True, os.environ["PYSPARK_PYTHON"]]


def test_read_makes_frames_of_one_or_more_topics(spark: SparkSession, broker: RunningBroker) -> None:
    with sparrow.sync.connect(broker.url) as client:
        for topic in ("a", "b"):
            client.publish(topic, topic.encode())
    frame = sparrow.spark.read(["a", "b"], spark=spark, url=broker.url, columns="value", minPartitions=None)
    assert frame.columns == ["value"]
    assert sorted(row.value for row in frame.collect()) == [b"a", b"b"]
    stream = sparrow.spark.read("a", spark=spark, stream=True, url=broker.url, includeHeaders=True)
    assert stream.isStreaming
    assert "headers" in stream.columns
