"""The client for threads: the names of `sparrow.connect`'s client, blocking.

    with sparrow.sync.connect("sparrow://127.0.0.1:9094") as client:
        client.publish("orders", b"one")
        with client.producer() as producer:
            producer.send("orders", b"two").result()
        with client.subscribe("orders", start="beginning") as messages:
            for message in messages:
                ...

Strategy: one background thread runs the async client; batches cross between threads, not single
messages. Any number of threads may use a client, its producers and its admin at once; a
subscription one at a time.
"""

from __future__ import annotations

from sparrow.client.blocking_jobs import BlockingJob as Job
from sparrow.client.blocking_jobs import BlockingJobBatch as JobBatch
from sparrow.sync.admin import Admin
from sparrow.sync.client import Client, connect
from sparrow.sync.msbq_channel import Channel
from sparrow.sync.producer import Delivery, Producer
from sparrow.sync.queue import Queue
from sparrow.sync.subscription import Subscription

__all__ = [
    "Admin",
    "Channel",
    "Client",
    "Delivery",
    "Job",
    "JobBatch",
    "Producer",
    "Queue",
    "Subscription",
    "connect",
]
