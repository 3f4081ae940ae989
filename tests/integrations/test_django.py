"""Django's tasks with the worker of the backend, at a real broker."""

from __future__ import annotations

import asyncio
import importlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import sparrow.sync
from sparrow.records import wellknown
from sparrow.testing.running_broker import RunningBroker

WAIT_S = 60
ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.slow


@pytest.fixture
def backend(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the backend of the site, without a worker."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "django_site.settings")
    import django
    from django.conf import settings
    from django.utils.functional import empty

    settings._wrapped = empty
    django.setup()
    module = importlib.import_module("sparrow.integrations.django")
    made = module.SparrowBackend("default", settings.TASKS["default"])
    module.task_backends._connections.default = made
    yield made
    made.close()


@pytest.fixture
def site(backend: Any) -> Iterator[Any]:
    """Yield the tasks of the site, with a worker."""
    module = importlib.import_module("sparrow.integrations.django")
    loop = asyncio.new_event_loop()
    worker = module.DjangoWorker(backend, concurrency=2)
    thread = threading.Thread(target=lambda: loop.run_until_complete(worker.run()))
    thread.start()
    yield importlib.import_module("django_site.tasks")
    loop.call_soon_threadsafe(worker.stop)
    thread.join(WAIT_S)
    loop.close()
    assert not thread.is_alive()


@contextmanager
def worker_process(log: Path, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run the worker as its command does, and write what it says to a file."""
    paths = [str(ROOT / "examples" / "integrations"), *sys.path]
    command = [sys.executable, "-m", "sparrow.integrations.django", *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=ROOT, stdout=file, stderr=file, env=environment)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def until(holds: Callable[[], Any], log: Path) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.02)


def has_stopped_taking(log: Path) -> bool:
    return "stopping: what runs may finish" in log.read_text()


def finished(result: Any) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not result.is_finished:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        result.refresh()
    return result


def test_tasks_run_with_results_times_errors_and_contexts(site: Any, broker: RunningBroker) -> None:
    from django.utils import timezone

    from sparrow.integrations.django import TaskResultDoesNotExist

    began = time.monotonic()
    later = site.send.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue("bob", "later")
    result = site.send.enqueue("alice", body="welcome")
    assert result.status == "READY"
    assert finished(result).return_value == len("to: alice\nwelcome")
    assert site.send.get_result(result.id).worker_ids == result.worker_ids
    failed = finished(site.fail.enqueue("no such address"))
    assert (failed.status, failed.errors[0].exception_class) == ("FAILED", ValueError)
    assert "no such address" in failed.errors[0].traceback
    assert finished(site.attempts.enqueue()).return_value == 1
    assert finished(later).return_value
    assert time.monotonic() - began >= 1
    with pytest.raises(TaskResultDoesNotExist):
        site.send.get_result("missing")
    with sparrow.sync.connect(broker.url) as client:
        client.queue("django-default").publish(b'{"task": "nowhere"}')
        deadline = time.monotonic() + WAIT_S
        while (
            not client.admin.describe_queue("django-default").statistics.dead
            or client.admin.describe_queue("django-emails").statistics.unfinished
        ):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_task_that_runs_at_sigterm_finishes_and_is_acknowledged_once(
    backend: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    from tests.integrations.waiting_tasks import wait

    log = tmp_path / "log"
    first = wait.enqueue(str(tmp_path), "first")
    with worker_process(log) as worker, sparrow.sync.connect(broker.url) as client:
        until((tmp_path / "first.began").exists, log)
        wait.using(queue_name="default").enqueue(str(tmp_path), "other queue")
        wait.enqueue(str(tmp_path), "same queue")
        worker.send_signal(signal.SIGTERM)
        until(lambda: has_stopped_taking(log), log)
        (tmp_path / "first.end").touch()
        assert worker.wait(WAIT_S) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
        first.refresh()
        assert (first.status, first.attempts, first.return_value) == ("SUCCESSFUL", 1, "first")
        statistics = client.admin.describe_queue("django-emails").statistics
        assert (statistics.acknowledged, statistics.unfinished) == (1, 1)
        for name in ("django-emails", "django-default"):
            (waiting,) = client.queue(name).peek()
            assert (waiting.state, waiting.delivery_count) == ("ready", 0)


def test_a_task_that_outlasts_the_shutdown_timeout_is_released_without_a_count(
    backend: Any, broker: RunningBroker, tmp_path: Path
) -> None:
    from tests.integrations.waiting_tasks import wait

    log = tmp_path / "log"
    wait.enqueue(str(tmp_path), "long")
    with (
        worker_process(log, "--shutdown-timeout", "0.1") as worker,
        sparrow.sync.connect(broker.url) as client,
    ):
        until((tmp_path / "long.began").exists, log)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(WAIT_S) == 0, log.read_text()
        assert "Traceback" not in log.read_text()
        (released,) = client.queue("django-emails").peek()
        assert (released.state, released.delivery_count) == ("ready", 0)


def test_a_task_has_its_priority_in_the_queue(backend: Any, broker: RunningBroker) -> None:
    tasks = importlib.import_module("django_site.tasks")
    for priority in (-100, 0, 20, 100):
        tasks.fail.using(priority=priority).enqueue(str(priority))
    with sparrow.sync.connect(broker.url) as client:
        found = [dict(record.headers)[wellknown.PRIORITY] for record in client.queue("django-default").peek()]
    assert found == [b"9", b"6", b"5", b"0"]  # in the order of delivery
