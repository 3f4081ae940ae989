"""Fixtures and settings of all tests."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

import sparrow.frontends
from tests.repetitions import repetitions
from tests.spark import class_archive
from tests.spark.home import spark_home

if TYPE_CHECKING:
    from xdist.remote import Producer

    from tests.schedule import LongestFirst

# Whatever ran pytest (nohup, a job of a shell or of a CI) may have it ignore these, and every
# process that a test starts inherits that.
for _number, _handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _handler)

# Brokers that tests start as commands take a free port for Kafka clients, so that they may run side
# by side.
os.environ.setdefault("SPARROW_KAFKA_PORT", "0")
os.environ.setdefault("SPARROW_HTTP_PORT", "0")
# They are many, and reuse compiled modules, whatever the environment says about writing them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
if home := spark_home():
    os.environ.setdefault("SPARK_HOME", home)
if options := class_archive.options():
    os.environ.setdefault("SPARK_SUBMIT_OPTS", options)
# kio's types load hypothesis where it is installed, which computes a table of characters for
# seconds unless it finds its cached one. Brokers in their own processes run in other directories,
# and must find it, too.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).parents[1] / ".hypothesis"))

# Brokers that tests run in a thread load some frontends when the first client comes. pytest parses
# such modules to rewrite their asserts, and CPython 3.11 counts the depth of trees for all threads
# together: two at it at once raise SystemError. So they are loaded here, by one.
for found in pkgutil.walk_packages(sparrow.frontends.__path__, "sparrow.frontends."):
    importlib.import_module(found.name)


# The duration of an example depends more on the machine than on the code.
hypothesis.settings.register_profile(
    "tests",
    max_examples=repetitions(100),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("tests")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Disable garbage collection during collection: thousands of tests are collected and live to
    the end, so Python would scan them repeatedly, also in the middle of timed code.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LongestFirst:
    """Return the scheduler, which decides which process runs which tests."""
    from tests.schedule import LongestFirst

    return LongestFirst(config, log)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the failures at the end: of a long output often only the end is kept."""
    for report in (each for kind in ("failed", "error") for each in terminalreporter.stats.get(kind, [])):
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None:
            terminalreporter.write_line(f"{report.nodeid}: {crash.message[:2000]}")
