"""Settings of `sparrow.spark.session`, and those that it leaves alone, without a JVM where
possible.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import AnalysisException

import sparrow.spark
from sparrow.base.errors import InvalidArgument
from sparrow.spark.session import (
    DAEMON_MODULE,
    LOCAL_FILE_SETTINGS,
    SETTINGS,
    _ignore_what_is_set_already,
    active_session,
    settings,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparrow.testing.running_broker import RunningBroker

DAEMON = "spark.python.daemon.module"
MODULE = sys.modules["sparrow.spark.session"]  # its name is that of the function


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove settings from elsewhere."""
    for name in (
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_SUBMIT_ARGS",
        "SPARK_CONF_DIR",
        "SPARK_HOME",
        "SPARK_REMOTE",
    ):
        monkeypatch.delenv(name, raising=False)


def test_local_sessions_have_all_five_settings_and_clusters_those_of_python() -> None:
    assert (
        settings()
        == settings(master="local[2]")
        == settings(remote="local[*]")
        == SETTINGS | LOCAL_FILE_SETTINGS
    )
    assert settings(master="spark://main:7077") == SETTINGS
    assert settings(conf={"spark.master": "yarn"}) == SETTINGS | {"spark.master": "yarn"}
    assert settings(master="yarn", local_files=True) == SETTINGS | LOCAL_FILE_SETTINGS
    assert settings(master="local[*]", local_files=False) == SETTINGS
    assert settings(remote="sc://host:15002") == {}


def test_settings_of_the_user_win(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
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


class Conf:
    """The settings of an existing session."""

    def __init__(self) -> None:
        self.values = {"spark.sql.shuffle.partitions": "2", "spark.ui.enabled": "true"}

    def get(self, name: str, default: str | None) -> str | None:
        return self.values.get(name, default)

    def set(self, name: str, text: str) -> None:
        if not name.startswith("spark.sql."):
            raise AnalysisException(f"[CANNOT_MODIFY_CONFIG] {name}")
        self.values[name] = text


def test_existing_session_takes_runtime_settings_and_a_warning_names_the_rest(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    there = type("Session", (), {"__module__": "pyspark.sql.connect.session", "conf": Conf()})()
    monkeypatch.setattr(MODULE, "active_session", lambda: there)
    given = {"spark.sql.shuffle.partitions": 4, "spark.ui.enabled": False, "spark.cores.max": 3}
    assert sparrow.spark.session(conf=given) is there
    assert there.conf.values == {"spark.sql.shuffle.partitions": "4", "spark.ui.enabled": "true"}
    told = [record.getMessage() for record in caplog.records]
    assert ["spark.ui.enabled" in told[0], "it keeps true" in told[0], "spark.cores.max" in told[1]] == [
        True
    ] * 3
    assert len(told) == 2


def test_server_of_connect_in_this_process_does_not_warn_of_its_start_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_REMOTE", raising=False)
    with warnings.catch_warnings(record=True, action="always") as told:
        _ignore_what_is_set_already("local[2]", {"spark.x": "1", DAEMON: "y"})
        for name in ("spark.x", DAEMON, "spark.y"):
            warnings.warn(f"Failed to set {name} to Some(1) due to …", stacklevel=1)
    assert [str(each.message)[:21] for each in told] == ["Failed to set spark.y"]


def test_defaults_of_the_spark_that_comes_with_pyspark_count(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(MODULE, "_spark_home", lambda: str(tmp_path))
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(f"{DAEMON} mine.daemon\n")
    assert DAEMON not in settings()


def test_impossible_arguments_are_refused_before_spark_starts(monkeypatch: pytest.MonkeyPatch) -> None:
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
        "sys.exit(bool({'pyspark', 'pyarrow', 'numpy', 'sparrow.pipelines'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


@pytest.mark.slow
def test_daemon_loads_modules_for_workers_in_one_thread_without_a_socket() -> None:
    program = f"""if True:
        import gc, json, os, sys
        from {DAEMON_MODULE} import preload
        preload()
        files = [f"/proc/self/fd/{{fd}}" for fd in os.listdir("/proc/self/fd")]
        opened = [os.readlink(file) for file in files if os.path.exists(file)]
        print(json.dumps([
            [
                name
                for name in ("pyarrow", "numba", "pyspark.worker", "sparrow.spark.datasource")
                if name in sys.modules
            ],
            gc.get_freeze_count() > 10_000,
            len(os.listdir("/proc/self/task")),
            [path for path in opened if path.startswith("socket")],
        ]))
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=100
    )
    loaded, is_frozen, threads, sockets = json.loads(done.stdout)
    assert loaded == ["pyarrow", "numba", "pyspark.worker", "sparrow.spark.datasource"]
    assert (is_frozen, threads, sockets) == (True, 1, [])
    assert done.stderr == ""


@pytest.mark.slow
def test_only_the_planning_process_of_a_sink_leaves_loaded_modules_out_of_collections() -> None:
    program = """if True:
        import gc, os
        from pyspark.sql.types import BinaryType, StructField, StructType
        from sparrow.spark.datasource import SparrowDataSource

        schema = StructType([StructField("value", BinaryType())])
        SparrowDataSource({"topic": "t"}).streamWriter(schema, False)
        here = gc.get_freeze_count()
        os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"] = "x"
        SparrowDataSource({"topic": "t"}).streamWriter(schema, False)
        once = gc.get_freeze_count()
        SparrowDataSource({"topic": "t"}).streamWriter(schema, False)
        print([here < 10_000 < once, gc.get_freeze_count() <= once])
    """
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[True, True]\n"


def test_unloadable_module_does_not_stop_the_daemon() -> None:
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
