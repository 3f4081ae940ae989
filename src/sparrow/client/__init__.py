"""The client: publishes, subscribes and administers over the native protocol. `docs/client.md` is
its tour.

It knows the protocol and the format of records, and nothing of a broker.
"""

from __future__ import annotations

from sparrow.client.admin import Admin
from sparrow.client.batch import Delivery, RecordMetadata
from sparrow.client.client import DEFAULT_URL, Client, connect
from sparrow.client.job import Job
from sparrow.client.job_batch import JobBatch
from sparrow.client.msbq_channel import Channel
from sparrow.client.policy import Policy
from sparrow.client.producer import Producer
from sparrow.client.queue import Queue
from sparrow.client.subscription import Subscription
from sparrow.client.worker import Reject, Retry
from sparrow.records.record import Record as Message

__all__ = [
    "DEFAULT_URL",
    "Admin",
    "Channel",
    "Client",
    "Delivery",
    "Job",
    "JobBatch",
    "Message",
    "Policy",
    "Producer",
    "Queue",
    "RecordMetadata",
    "Reject",
    "Retry",
    "Subscription",
    "connect",
]
