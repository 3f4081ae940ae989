"""Celery on Sparrow. Start a worker with

celery -A celery_app worker --pool threads --without-gossip --without-mingle
"""

import os

from celery import Celery
from celery.exceptions import Reject

import sparrow.integrations.kombu  # noqa: F401 - gives Celery the transport and the backend

URL = os.environ.get("SPARROW_URL", "sparrow://127.0.0.1:9094")
app = Celery("celery_app", broker=URL, backend=URL)
app.conf.update(
    broker_transport_options={"queue_policy": {"lease": "30s", "delivery_limit": 3}},
    worker_enable_remote_control=False,
    task_acks_late=True,
    task_track_started=True,
)


@app.task
def add(a: int, b: int) -> int:
    return a + b


@app.task
def total(numbers: list[int]) -> int:
    return sum(numbers)


@app.task(bind=True, max_retries=3)
def flaky(self, fail: int) -> int:
    """Fail some times, and return the number of retries."""
    if self.request.retries < fail:
        raise self.retry(countdown=0.2, exc=RuntimeError("not yet"))
    return self.request.retries


@app.task
def refused(reason: str) -> None:
    """Give up for good: the message becomes a dead letter."""
    raise Reject(reason, requeue=False)
