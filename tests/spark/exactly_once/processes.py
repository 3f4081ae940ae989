"""The driver as a process, with all that it starts; and the choice of the process to kill."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.spark.exactly_once.mortal import DEATH_FILE

if TYPE_CHECKING:
    from random import Random

_numbers = count()
HERE = Path(__file__).parent
_TASKS = "pyspark.worker"
"""A part of the command of the daemon whose children run tasks; others plan, read offsets and
commit.
"""


class DriverProcess:
    """One life of the driver, which gets ready while the one before it is still running."""

    def __init__(self, folder: Path, url: str) -> None:
        self.death_file = folder / "death"
        self._folder = folder
        self._go_file = folder / f"go-{next(_numbers)}"
        environment = {
            **os.environ,
            "PYTHONPATH": str(HERE),
            "PYSPARK_PYTHON": sys.executable,
            "SPARROW_URL": url,
            DEATH_FILE: str(self.death_file),
        }
        with open(folder / "driver.log", "ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "driver.py"), str(folder), str(self._go_file)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
        self._seen: set[psutil.Process] = set()

    def go(self, how_long: str) -> None:
        """Let it begin: until then it only gets ready."""
        self._go_file.write_text(how_long, encoding="utf-8")

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def log_end(self) -> str:
        return (self._folder / "driver.log").read_text(encoding="utf-8", errors="replace")[-4000:]

    def workers(self) -> tuple[list[psutil.Process], list[psutil.Process]]:
        """Return the Python processes that run tasks, and those that plan, look up offsets and
        commit.
        """
        tasks: list[psutil.Process] = []
        others: list[psutil.Process] = []
        for daemon in self._daemons():
            with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
                found = daemon.children()
                (tasks if _TASKS in daemon.cmdline() else others).extend(found)
        return tasks, others

    def _daemons(self) -> list[psutil.Process]:
        try:
            driver = psutil.Process(self._process.pid)
            self._seen.update(driver.children(recursive=True))
            return [each for java in driver.children() for each in java.children()]
        except psutil.NoSuchProcess:
            return []

    def kill_worker(self, random: Random) -> bool:
        """Kill one of its Python workers with kill -9, mostly one that runs tasks."""
        tasks, others = self.workers()
        group = tasks if tasks and (random.random() < 0.8 or not others) else others
        if not group:
            return False
        try:
            random.choice(sorted(group, key=lambda each: each.pid)).kill()
        except psutil.NoSuchProcess:
            return False
        return True

    def kill(self) -> None:
        """Kill the driver and its JVM with kill -9; their remaining children end by themselves, or
        are ended here.
        """
        self._daemons()
        for each in (*self._jvm(), self._process):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.bury()

    def _jvm(self) -> list[psutil.Process]:
        try:
            return psutil.Process(self._process.pid).children()
        except psutil.NoSuchProcess:
            return []

    def bury(self) -> None:
        """Wait until the driver and all that it started are gone."""
        self._process.wait(60)
        _, alive = psutil.wait_procs(self._seen, timeout=5)
        for each in alive:
            with suppress(psutil.NoSuchProcess):
                each.kill()

    def wait(self, timeout_s: float) -> int:
        """Wait until it ends by itself; return its exit code."""
        return self._process.wait(timeout_s)
