"""A Spark session in which Sparrow's topics are quick, and the registration in any session.

Five settings halve the time of a micro-batch. Two apply wherever Spark runs: Unix sockets between
JVM and Python (no 40 ms stall of TCP at every task), and the daemon module that preloads. Three are
about checkpoints on a local disk, which Spark otherwise writes with a `chmod` in a separate process
and a CRC file for every file; they are set for local masters only, and left out by
`local_files=False`. A plain session works as well, only slower.

Settings of the user win: in `conf`, in `spark-defaults.conf`, by `--conf` of spark-submit, and in a
session that exists already.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shlex
import shutil
import socket
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sparrow.base.errors import ConnectionLost, InvalidArgument, SparrowError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = "sparrow"
DAEMON_MODULE = "sparrow.spark.daemon"
SETTINGS = {
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.daemon.module": DAEMON_MODULE,
}
"""Settings that are quicker everywhere."""
LOCAL_FILE_SETTINGS = {
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
"""Settings for quicker checkpoints on a local disk; renames keep them atomic, the CRC files beside
them are gone.
"""
_CONNECT_PORT = 15002
_CONNECT_TIMEOUT_S = 10
_PROXIES = {"grpc_proxy", "https_proxy", "http_proxy", "all_proxy"}
"""Variables of proxies, with which a server need not be reached directly."""
_EXTRA = "pip install 'sparrow-broker[spark]'"
_log = logging.getLogger("sparrow.spark")


def session(
    name: str = "sparrow",
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, object] | None = None,
    local_files: bool | None = None,
) -> SparkSession:
    """Return the Spark session of this process, created if there is none, with `format("sparrow")`.

    An existing session takes from `conf` what can be set while Spark runs; a warning names the
    rest.

    Args:
        name: of the application.
        master: where Spark runs ("local[*]", "spark://…", "yarn", …); None: the master of
            spark-submit, otherwise local[*].
        remote: a Spark Connect server instead: "sc://host:15002", or "local[*]" for one in this
            process; None: the value of SPARK_REMOTE, unless there is a master.
        conf: further settings; they win over those of this function.
        local_files: write files on a local disk the quick way; None: when the master is local.

    Raises:
        InvalidArgument: both `master` and `remote`, a setting that is no plain value, or no Java
            where a JVM has to be started.
        ConnectionLost: no Spark Connect server can be reached there.
    """
    if master is not None and remote is not None:
        raise InvalidArgument(f"master is {master!r} and remote is {remote!r}; a session has one of them")
    spark = active_session() if remote is None else None
    if spark is None:
        remote = remote or (os.environ.get("SPARK_REMOTE") if master is None else None)
        spark = _made(
            name, master, remote, settings(master=master, remote=remote, conf=conf, local_files=local_files)
        )
    else:
        _set(spark, _texts(conf))
    register_here(spark)
    return spark


def settings(
    *,
    master: str | None = None,
    remote: str | None = None,
    conf: Mapping[str, object] | None = None,
    local_files: bool | None = None,
) -> dict[str, str]:
    """Return the settings of `session`: the five where they apply and are not set elsewhere, and
    `conf`.
    """
    given = _texts(conf)
    if remote is not None and not remote.startswith("local"):
        # The server's settings are its own.
        return given
    outer = dict(_settings_of_submit())
    where = remote or master or given.get("spark.master") or outer.get("spark.master") or "local[*]"
    quick = dict(SETTINGS)
    if where.startswith("local") if local_files is None else local_files:
        quick |= LOCAL_FILE_SETTINGS
    return {name: value for name, value in quick.items() if name not in outer} | given


def register(spark: SparkSession | None = None) -> None:
    """Make `format("sparrow")` known to a session.

    PySpark finds the format by itself where Sparrow is installed on the driver; this is for
    sessions that began before.

    Raises:
        InvalidArgument: there is no session.
    """
    spark = spark or active_session()
    if spark is None:
        raise InvalidArgument(
            "there is no Spark session to register with; make one by sparrow.spark.session()"
        )
    if not _is_known(spark):
        from sparrow.spark.datasource import SparrowDataSource

        spark.dataSource.register(SparrowDataSource)


def register_here(spark: SparkSession | None) -> None:
    """Register with a session of this process. A server of Spark Connect finds the format in its
    own packages, or could not load it anyway, and warns of every registration.
    """
    if spark is not None and not type(spark).__module__.startswith("pyspark.sql.connect"):
        register(spark)


def read(
    topics: str | Iterable[str], *, spark: SparkSession | None = None, stream: bool = False, **options: object
) -> DataFrame:
    """Return a data frame of one or more topics.

    Args:
        topics: their names.
        spark: the session; None: the active one, or a new one.
        stream: True: a streaming frame, which also gets what is published later.
        options: of `format("sparrow")`, such as startingOffsets="earliest" or columns="value,
            offset".
    """
    names = topics if isinstance(topics, str) else ",".join(topics)
    spark = spark or active_session() or session()
    reader = spark.readStream if stream else spark.read
    given = _texts({name: value for name, value in options.items() if value is not None})
    return reader.format(FORMAT).options(**{"subscribe": names, **given}).load()


def active_session() -> SparkSession | None:
    """Return the session of this process, if there is one. Loads no PySpark."""
    if "pyspark.sql.session" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    try:
        return SparkSession.active()
    except Exception:  # noqa: BLE001 - what it raises differs between classic and Connect; all mean that there is none
        return None


def _made(name: str, master: str | None, remote: str | None, conf: Mapping[str, str]) -> SparkSession:
    try:
        from pyspark.errors import PySparkException
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise InvalidArgument(f"PySpark cannot be loaded ({error}); install it by {_EXTRA}") from None
    if remote is None or remote.startswith("local"):
        check_java()
        _use_this_python(conf.get("spark.master") or master or remote or "local")
    elif not _PROXIES & {name.lower() for name in os.environ}:
        _check_server(remote)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    if remote is not None:
        builder = builder.remote(remote)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        with warnings.catch_warnings():
            _ignore_what_is_set_already(remote, conf)
            return builder.getOrCreate()
    except PySparkException as error:
        raise SparrowError(
            f"Spark did not start: {_first_line(error)}; what it wrote above says more"
        ) from error


def _ignore_what_is_set_already(remote: str | None, conf: Mapping[str, str]) -> None:
    """Ignore that the session of a Spark Connect server in this process cannot set the settings
    with which the server was started.
    """
    if remote is not None and remote.startswith("local"):
        is_there = "SPARK_LOCAL_REMOTE" in os.environ
        names = "|".join(map(re.escape, SETTINGS | LOCAL_FILE_SETTINGS if is_there else conf))
        warnings.filterwarnings("ignore", f"Failed to set ({names}) ", UserWarning)


def _set(spark: SparkSession, conf: Mapping[str, str]) -> None:
    """Set in an existing session what can be set."""
    from pyspark.errors import PySparkException

    for name, text in conf.items():
        found = spark.conf.get(name, None)
        if found == text:
            continue
        try:
            spark.conf.set(name, text)
        except PySparkException:
            _log.warning(
                "%s cannot be set any more: there is a session already, and it keeps %s", name, found
            )


def _is_known(spark: SparkSession) -> bool:
    """Return True if Spark found the format by itself, as it warns of a second registration. False
    where it cannot be known.
    """
    try:
        state = spark._jsparkSession.sessionState()  # noqa: SLF001 - there is no public way to ask
        return bool(state.dataSourceManager().dataSourceExists(FORMAT))
    except Exception:  # noqa: BLE001 - Spark Connect has no JVM here, another version perhaps another method
        return False


def _check_server(remote: str) -> None:
    """Check that a server exists; PySpark tries for minutes to reach one that does not."""
    where = urlsplit(remote)
    try:
        port = where.port or _CONNECT_PORT
    except ValueError:
        raise InvalidArgument(f"remote is {remote!r}; write sc://host:{_CONNECT_PORT}") from None
    if where.scheme != "sc" or not where.hostname:
        raise InvalidArgument(f"remote is {remote!r}; write sc://host:{_CONNECT_PORT}, or local[*]")
    try:
        socket.create_connection((where.hostname, port), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        raise ConnectionLost(
            f"no Spark Connect server can be reached at {where.hostname}:{port} ({error.strerror or error});"
            " check that it runs (start-connect-server.sh of Spark), and host and port"
        ) from None


def check_java() -> None:
    """Check that Spark finds a Java.

    Raises:
        InvalidArgument: it does not; the text says how to install one.
    """
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else "java"
    if "PYSPARK_GATEWAY_PORT" not in os.environ and shutil.which(java) is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "there is no java in the PATH"
        raise InvalidArgument(
            f"Spark needs Java 17 or newer, and {where}; on Debian and Ubuntu: apt install "
            "openjdk-17-jre-headless"
        )


def _use_this_python(where: str) -> None:
    """Make workers use this Python: Spark runs `python3`, which need not be the one of this virtual
    environment; on other machines there may be no other.
    """
    if where.startswith("local") and "spark.pyspark.python" not in dict(_settings_of_submit()):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def _settings_of_submit() -> Iterator[tuple[str, str]]:
    """Return the settings of spark-submit, its environment and spark-defaults.conf; the builder's
    settings would win over them.
    """
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        from pyspark import SparkConf

        yield from SparkConf().getAll()
        return
    yield from _defaults_file()
    words = iter(shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "")))
    for word in words:
        if word in {"--conf", "-c"}:
            key, _, value = next(words, "").partition("=")
            yield key, value
        elif word == "--master":
            yield "spark.master", next(words, "")


def _defaults_file() -> Iterator[tuple[str, str]]:
    folder = os.environ.get("SPARK_CONF_DIR") or os.path.join(_spark_home(), "conf")
    try:
        with open(os.path.join(folder, "spark-defaults.conf"), encoding="utf-8") as file:
            lines = file.read().splitlines()
    except OSError:
        return
    for line in lines:
        key, _, value = line.strip().replace("=", " ", 1).partition(" ")
        if key and not key.startswith("#"):
            yield key, value.strip()


def _spark_home() -> str:
    """Return the directory of Spark, which PySpark brings along."""
    found = importlib.util.find_spec("pyspark")
    return os.environ.get("SPARK_HOME") or os.path.dirname((found and found.origin) or "")


def _texts(values: Mapping[str, object] | None) -> dict[str, str]:
    return {name: _text(name, value) for name, value in (values or {}).items()}


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise InvalidArgument(f"{name} is {value!r}; it must be a text, a number or true or false")
    return str(value)


def _first_line(error: Any) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
