"""Django's tasks with the worker of the backend, at a real broker."""

from __future__ import annotations

import asyncio
import importlib
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import sparrow.sync
from sparrow.testing.running_broker import RunningBroker

WAIT_S = 60
pytestmark = pytest.mark.slow


@pytest.fixture
def site(broker: RunningBroker, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Yield the tasks of the site, with a worker."""
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "django_site.settings")
    import django
    from django.conf import settings

    settings._wrapped = None
    from django.utils.functional import empty

    settings._wrapped = empty
    django.setup()
    module = importlib.import_module("sparrow.integrations.django")
    backend = module.SparrowBackend("default", settings.TASKS["default"])
    from django_tasks import task_backends

    task_backends._connections.default = backend
    loop = asyncio.new_event_loop()
    worker = module.DjangoWorker(backend, concurrency=2)
    thread = threading.Thread(target=lambda: loop.run_until_complete(worker.run()))
    thread.start()
    yield importlib.import_module("django_site.tasks")
    loop.call_soon_threadsafe(worker.stop)
    thread.join(WAIT_S)
    loop.close()
    backend.close()
    assert not thread.is_alive()


def finished(result: Any) -> Any:
    deadline = time.monotonic() + WAIT_S
    while not result.is_finished:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        result.refresh()
    return result


def test_tasks_run_with_results_times_errors_and_contexts(site: Any, broker: RunningBroker) -> None:
    from django.utils import timezone
    from django_tasks.exceptions import TaskResultDoesNotExist

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
