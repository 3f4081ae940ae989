"""A transport for kombu, and so for Celery, on queues.

    import sparrow.integrations.kombu
    app = Celery(broker="sparrow://127.0.0.1:9094")

Importing the module gives kombu the transport, and Celery the result backend of the same scheme
(`celery_results.py`). A queue of Celery is a queue of Sparrow. The broker
keeps what other transports keep in the worker: a task with an `eta` or `countdown` is delivered
when it is due, and priorities (1 to 9) order the queue. A message is leased until the worker
acknowledges it, and the lease is extended meanwhile; `reject(requeue=False)` makes a dead letter,
and a worker that dies leaves its messages to others when their leases end.

Exchanges of type direct and topic route in the process that publishes; there is no fanout, so
remote control (`worker_enable_remote_control`) and gossip are off.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import suppress
from datetime import UTC, datetime
from queue import Empty
from typing import TYPE_CHECKING, Any, Final

from sparrow.base.errors import InvalidArgument, NotLeased, SparrowError, UnknownQueue
from sparrow.client.client import Client, connect
from sparrow.integrations.lease_keeper import LeaseKeeper
from sparrow.sync.background import Background

try:
    from kombu.transport import TRANSPORT_ALIASES, virtual
    from kombu.utils.uuid import uuid
except ImportError as error:
    raise ImportError(
        "sparrow.integrations.kombu needs kombu, which Celery has; install it: pip install celery"
    ) from error

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from sparrow.client.job import Job
    from sparrow.client.queue import Queue

_DEFAULT_PORT: Final = 9094
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9._-]")
_NO_PRIORITY: Final = -1
_LEASE_WAIT_S: Final = 1.0
_GET_WAIT_S: Final = 0.1


class KombuSession:
    """The client of one connection of kombu, in a thread of its own. Any thread."""

    def __init__(self, url: str, options: dict[str, Any]) -> None:
        self._prefetch: int = options.get("prefetch", 100)
        self._policy = options.get("queue_policy")
        self._background = Background(url)
        self._queues: dict[str, Queue] = {}
        self._waiting: dict[str, asyncio.Task[Job | None]] = {}
        self._keeper = LeaseKeeper()
        try:
            self._client: Client = self.run(self._connect(url, options.get("connect", {})))
        except BaseException:
            self._background.stop()
            raise

    async def _connect(self, url: str, options: dict[str, Any]) -> Client:
        self._keeper.start()
        return await connect(url, **options)

    @property
    def client(self) -> Client:
        """The client; it is used on its own loop alone (`run`)."""
        return self._client

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the client's loop and return its result."""
        return self._background.run(work)

    @property
    def is_forked(self) -> bool:
        """True in a child of the process that connected."""
        return self._background.is_forked

    def close(self) -> None:
        """Release all messages that are not acknowledged, and disconnect."""
        if self._background.is_forked:
            return
        with suppress(SparrowError):
            self._background.run_last(self._close())
        self._background.stop()

    async def _close(self) -> None:
        for task in self._waiting.values():
            task.cancel()
        await self._keeper.stop()
        await self._client.close()

    async def declare(self, name: str) -> None:
        """Make a queue if it is missing."""
        await self._client.admin.ensure_queue(name, policy=self._policy)

    async def publish(self, name: str, data: bytes, priority: int, deliver_at: datetime | None) -> None:
        """Publish a message to a queue."""
        await self._queue(name).publish(
            data, priority=None if priority == _NO_PRIORITY else priority, deliver_at=deliver_at
        )

    def _queue(self, name: str) -> Queue:
        if name not in self._queues:
            self._queues[name] = self._client.queue(name, prefetch=self._prefetch, policy=self._policy)
        return self._queues[name]

    async def take(
        self, names: list[str], wait_s: float | None, lease_wait_s: float = _LEASE_WAIT_S
    ) -> tuple[str, Job] | None:
        """Return the next message of some queues, or None.

        Args:
            wait_s: longest wait for the broker; None: until a lease has its response.
            lease_wait_s: longest wait of the broker for a message.
        """
        for name in names:
            if name not in self._waiting:
                self._waiting[name] = asyncio.create_task(self._lease(name, lease_wait_s))
        tasks = {self._waiting[name]: name for name in names}
        done, _ = await asyncio.wait(tasks, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            name = tasks[task]
            del self._waiting[name]
            job = task.result()
            if job is not None:
                self._keeper.keep(job)
                return name, job
        return None

    async def _lease(self, name: str, wait_s: float) -> Job | None:
        jobs = (await self._queue(name).lease(1, wait_s=wait_s)).jobs
        return jobs[0] if jobs else None

    async def settle(self, settlement: Callable[[], Any]) -> None:
        """Settle a message; one whose lease is over comes again, and is not settled."""
        with suppress(NotLeased):
            await settlement()

    async def size(self, name: str) -> int:
        """Return the number of messages that are not finished; 0 for a missing queue."""
        try:
            return (await self._client.admin.describe_queue(name)).statistics.unfinished
        except UnknownQueue:
            return 0

    async def exists(self, name: str) -> bool:
        """Return True if there is a queue of this name."""
        try:
            await self._client.admin.describe_queue(name)
        except UnknownQueue:
            return False
        return True

    async def purge(self, name: str) -> int:
        """Finish all messages that nobody has; return their number."""
        return await self._client.admin.purge_queue(name)

    async def delete(self, name: str) -> None:
        """Delete a queue."""
        queue = self._queues.pop(name, None)
        if queue is not None:
            await queue.close()
        with suppress(UnknownQueue):
            await self._client.admin.delete_queue(name)


class SparrowQoS(virtual.QoS):
    """Settles the messages of a channel at the broker."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message: it is never delivered again."""
        self.channel.settle(delivery_tag, "ack")
        super().ack(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back, as one that failed, or (without `requeue`) to the dead letters."""
        self.channel.settle(delivery_tag, "nack" if requeue else "reject")
        self._quick_ack(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Release all messages that are not acknowledged, without a count."""
        self._flush()
        for delivery_tag in list(self._delivered):
            self.channel.settle(delivery_tag, "release")
        self._delivered.clear()
        return []


class Channel(virtual.Channel):
    """A channel of kombu on the client of its connection."""

    QoS = SparrowQoS
    do_restore = False
    supports_fanout = False
    default_priority = _NO_PRIORITY

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._jobs: dict[str, Job] = {}
        super().__init__(*arguments, **options)

    @property
    def session(self) -> KombuSession:
        """The client of the connection."""
        session: KombuSession = self.connection.session
        return session

    def _new_queue(self, queue: str, **_: Any) -> None:
        self.session.run(self.session.declare(name_of(queue)))

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return bool(self.session.run(self.session.exists(name_of(queue))))

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        data = json.dumps(message).encode()
        priority = self._get_message_priority(message)
        self.session.run(self.session.publish(name_of(queue), data, priority, due_of(message)))

    def _get_message_priority(self, message: dict[str, Any], reverse: bool = False) -> int:  # noqa: ARG002 - kombu's signature
        priority = message.get("properties", {}).get("priority")
        return priority if isinstance(priority, int) and 0 <= priority <= 9 else _NO_PRIORITY

    def _get(self, queue: str, timeout: float | None = None) -> dict[str, Any]:
        taken = self.session.run(self.session.take([name_of(queue)], None, timeout or _GET_WAIT_S))
        if taken is None:
            raise Empty
        return self._payload(*taken)[1]

    def _get_many(self, queues: list[str], timeout: float | None = None) -> None:
        """Wait for a message of any queue and deliver it."""
        names = {name_of(queue): queue for queue in queues}
        wait_s = self.connection.polling_interval if timeout is None else timeout
        taken = self.session.run(self.session.take(list(names), wait_s))
        if taken is None:
            raise Empty
        name, payload = self._payload(*taken)
        if payload:
            self.connection._deliver(payload, names[name])  # noqa: SLF001 - kombu's way

    def _payload(self, name: str, job: Job) -> tuple[str, dict[str, Any]]:
        """Return the message of a job, under a delivery tag of its own."""
        try:
            payload = json.loads(job.value or b"")
            properties = payload["properties"]
        except (ValueError, KeyError, TypeError) as error:
            reason = f"this is no message of kombu: {error}"
            self.session.run(self.session.settle(lambda: job.reject(reason)))
            return name, {}
        tag = properties["delivery_tag"] = uuid()
        if job.delivery_count > 1:
            payload["redelivered"] = True
            properties.setdefault("delivery_info", {})["redelivered"] = True
        self._jobs[tag] = job
        return name, payload

    def settle(self, delivery_tag: str, verb: str) -> None:
        """Settle a message: "ack", "nack", "reject" or "release"."""
        job = self._jobs.pop(delivery_tag, None)
        if job is not None and not self.session.is_forked:
            self.session.run(self.session.settle(getattr(job, verb)))

    def _size(self, queue: str) -> int:
        return int(self.session.run(self.session.size(name_of(queue))))

    def _purge(self, queue: str) -> int:
        return int(self.session.run(self.session.purge(name_of(queue))))

    def _delete(self, queue: str, *_: Any, **__: Any) -> None:
        self.session.run(self.session.delete(name_of(queue)))

    def close(self) -> None:
        """Release what is not acknowledged."""
        if not self.closed and self._qos is not None and not self.session.is_forked:
            with suppress(SparrowError):
                self._qos.restore_unacked()
        super().close()


class Transport(virtual.Transport):
    """The transport: `sparrow://HOST:PORT`.

    `transport_options`: `connect` (options of `sparrow.connect`, such as a token), `queue_policy`
    (settings of the queues), `polling_interval` (longest wait for a message, in seconds).
    """

    Channel = Channel
    default_port = _DEFAULT_PORT
    driver_type = "sparrow"
    driver_name = "sparrow"
    polling_interval = 1.0
    connection_errors = (*virtual.Transport.connection_errors, SparrowError)
    channel_errors = (*virtual.Transport.channel_errors, InvalidArgument)

    def __init__(self, client: Any, **options: Any) -> None:
        super().__init__(client, **options)
        self._session: KombuSession | None = None

    @property
    def session(self) -> KombuSession:
        """The client; one of its own in each process."""
        if self._session is None or self._session.is_forked:
            conninfo = self.client
            url, options = session_options(
                conninfo.hostname,
                conninfo.port,
                conninfo.userid,
                conninfo.password,
                dict(conninfo.transport_options),
            )
            self._session = KombuSession(url, options)
        return self._session

    def close_connection(self, connection: Any) -> None:
        """Close all channels, and disconnect."""
        super().close_connection(connection)
        if self._session is not None:
            self._session.close()
            self._session = None

    def driver_version(self) -> str:
        """Return the version of Sparrow."""
        from sparrow.base.version import VERSION

        return VERSION


def session_options(
    host: str | None, port: int | None, user: str | None, password: str | None, given: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    """Return the address and the options of a session by the parts of a URL, and `given` options,
    whose login goes before that of the URL.
    """
    login = {"user": user, "password": password} if user else {}
    url = f"sparrow://{host or '127.0.0.1'}:{port or _DEFAULT_PORT}"
    return url, {**given, "connect": {**login, **given.get("connect", {})}}


def name_of(queue: str) -> str:
    """Return the name of a queue of kombu as Sparrow has it: other characters become "-"."""
    return _NOT_IN_NAMES.sub("-", queue)


def due_of(message: dict[str, Any]) -> datetime | None:
    """Return the time before which a message must not be delivered: the `eta` of Celery's tasks."""
    eta = (message.get("headers") or {}).get("eta")
    if not isinstance(eta, str):
        return None
    try:
        due = datetime.fromisoformat(eta)
    except ValueError:
        return None
    due = due if due.tzinfo else due.replace(tzinfo=UTC)
    return due if due.timestamp() > time.time() else None


TRANSPORT_ALIASES["sparrow"] = f"{__name__}:Transport"
with suppress(ImportError):  # kombu may be there without Celery
    from celery.app.backends import BACKEND_ALIASES

    BACKEND_ALIASES["sparrow"] = "sparrow.integrations.celery_results:CeleryResultBackend"
