"""Sparrow, the message broker for Python and Spark.

    async with sparrow.connect("sparrow://127.0.0.1:9094") as client:
        await client.publish("orders", b"one")

Names are loaded at their first use, so that `import sparrow` is cheap and the thin install needs
only the client's libraries.
"""

from __future__ import annotations

# Not imported from typing, which would cost more than everything else here; type checkers know the
# name.
TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any

    from sparrow import sync
    from sparrow.base.errors import (
        BadInput,
        Conflict,
        ConnectionLost,
        DiskFull,
        InvalidArgument,
        InvalidConfig,
        LeasedByAnother,
        LeaseExpired,
        NotAuthenticated,
        NotAuthorized,
        NotFound,
        NotLeased,
        Overloaded,
        ProducerFenced,
        QueueExists,
        RecordTooLarge,
        Refused,
        SparrowError,
        StaleMember,
        TimedOut,
        TopicExists,
        Unavailable,
        UnknownGroup,
        UnknownPartition,
        UnknownQueue,
        UnknownSchedule,
        UnknownTopic,
        UnknownWebhook,
        UsedAfterFork,
    )
    from sparrow.broker.broker import Broker
    from sparrow.client.batch import Delivery, RecordMetadata
    from sparrow.client.client import Client, connect
    from sparrow.client.job import Job
    from sparrow.client.job_batch import JobBatch
    from sparrow.client.policy import Policy
    from sparrow.client.producer import Producer
    from sparrow.client.queue import Queue
    from sparrow.client.subscription import Subscription
    from sparrow.client.worker import Reject, Retry
    from sparrow.records.record import Record as Message
    from sparrow.tasks.app import Tasks
    from sparrow.tasks.jobs import TaskJob

__all__ = [
    "BadInput",
    "Broker",
    "Client",
    "Conflict",
    "ConnectionLost",
    "Delivery",
    "DiskFull",
    "InvalidArgument",
    "InvalidConfig",
    "Job",
    "JobBatch",
    "LeaseExpired",
    "LeasedByAnother",
    "Message",
    "NotAuthenticated",
    "NotAuthorized",
    "NotFound",
    "NotLeased",
    "Overloaded",
    "Policy",
    "Producer",
    "ProducerFenced",
    "Queue",
    "QueueExists",
    "RecordMetadata",
    "RecordTooLarge",
    "Refused",
    "Reject",
    "Retry",
    "SparrowError",
    "StaleMember",
    "Subscription",
    "TaskJob",
    "Tasks",
    "TimedOut",
    "TopicExists",
    "Unavailable",
    "UnknownGroup",
    "UnknownPartition",
    "UnknownQueue",
    "UnknownSchedule",
    "UnknownTopic",
    "UnknownWebhook",
    "UsedAfterFork",
    "connect",
    "sync",
]

_ERRORS = "sparrow.base.errors"
_LOCATIONS = {
    "Broker": ("sparrow.broker.broker", "Broker"),
    "Client": ("sparrow.client.client", "Client"),
    "Delivery": ("sparrow.client.batch", "Delivery"),
    "Job": ("sparrow.client.job", "Job"),
    "JobBatch": ("sparrow.client.job_batch", "JobBatch"),
    "Message": ("sparrow.records.record", "Record"),
    "Policy": ("sparrow.client.policy", "Policy"),
    "Producer": ("sparrow.client.producer", "Producer"),
    "Queue": ("sparrow.client.queue", "Queue"),
    "RecordMetadata": ("sparrow.client.batch", "RecordMetadata"),
    "Reject": ("sparrow.client.worker", "Reject"),
    "Retry": ("sparrow.client.worker", "Retry"),
    "Subscription": ("sparrow.client.subscription", "Subscription"),
    "TaskJob": ("sparrow.tasks.jobs", "TaskJob"),
    "Tasks": ("sparrow.tasks.app", "Tasks"),
    "connect": ("sparrow.client.client", "connect"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "__version__":
        return import_module("sparrow.base.version").VERSION
    if name == "sync":
        return import_module("sparrow.sync")
    if name not in __all__:
        raise AttributeError(f"module 'sparrow' has no attribute {name!r}")
    module, attribute = _LOCATIONS.get(name, (_ERRORS, name))
    try:
        found = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if name != "Broker" or (error.name or "").startswith("sparrow"):
            raise
        raise ImportError(
            f"sparrow.Broker needs the server's libraries ({error.name} is missing): pip install "
            "sparrow-broker[server]",
            name=error.name,
        ) from error
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
