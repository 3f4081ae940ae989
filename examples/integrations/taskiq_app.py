"""taskiq on Sparrow. Start a worker with

taskiq worker taskiq_app:broker
"""

import os

from taskiq import Context, SimpleRetryMiddleware, TaskiqDepends

from sparrow.integrations.taskiq import SparrowBroker, SparrowResultBackend

URL = os.environ.get("SPARROW_URL", "sparrow://127.0.0.1:9094")
broker = (
    SparrowBroker(URL, "taskiq-jobs", policy={"lease": "30s", "delivery_limit": 3})
    .with_result_backend(SparrowResultBackend(URL))
    .with_middlewares(SimpleRetryMiddleware(default_retry_count=3))
)


@broker.task
async def add(a: int, b: int) -> int:
    return a + b


@broker.task(retry_on_error=True, max_retries=3)
async def flaky(context: Context = TaskiqDepends()) -> int:  # noqa: B008 - taskiq's way
    """Fail the first time, and return the number of retries."""
    retries = int(context.message.labels.get("_retries", 0))
    if retries < 1:
        raise RuntimeError("not yet")
    return retries
