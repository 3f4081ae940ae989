"""The shared state of the connections of one frontend: broker, budgets and deadlines; and the
connections themselves: who is admitted, when they are swept, and how they end together.

Each frontend has a subclass in its `context.py`, with its limits and services. All parts of the
frontend import that, and never the frontend.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from sparrow.base.errors import Draining, Overloaded, SparrowError
from sparrow.frontends.transport.connection_limit import ConnectionLimit
from sparrow.frontends.transport.receive_budget import ReceiveBudget
from sparrow.frontends.transport.send_budget import SendBudget
from sparrow.frontends.transport.tls import tls_options
from sparrow.frontends.transport.wrong_port import WrongPortReplies

if TYPE_CHECKING:
    import socket
    import ssl
    from collections.abc import Callable, Coroutine

    from sparrow.broker.broker import Broker
    from sparrow.frontends.listener_limits import ListenerLimits
    from sparrow.frontends.transport.admission import ConnectionSlot
    from sparrow.frontends.transport.liveness import Deadlines
    from sparrow.model.connections import ConnectionDescription
    from sparrow.protocol.detection import WireProtocol

BACKLOG: Final = 1024
"""Connections that the system accepts beforehand."""
MAX_REFUSED: Final = 100
"""Refused connections that may still read the reason; further ones are closed at once."""
POLL_S: Final = 0.01
LAST_TASKS_S: Final = 1.0
"""Time for tasks to end after the last connection, before they are cancelled; and after that."""


class OpenConnection(Protocol):
    """A connection, as its context sees it; see `Connection`."""

    slot: ConnectionSlot | None
    host: str
    number: int

    def sweep(self, now: float) -> None: ...
    def turn_away(self) -> None: ...
    def describe(self) -> ConnectionDescription: ...
    def abort(self) -> None: ...


C = TypeVar("C", bound=OpenConnection)


class TransportContext(Generic[C]):
    """The shared state of the connections of one frontend. Loop thread only.

    Args:
        name: the name of the listener in metrics and logs.
        protocol: the protocol that is spoken here; clients of others learn which port is theirs.
            None: clients of others are not recognized.
        deadlines: the timeouts of connections.
        limits: see `ListenerLimits`.
        send_budget: memory of responses that all listeners share; None: this one has its own.
        connection_limit: limits that all frontends share; None: this one shares none.
        now: the clock of deadlines, in monotonic seconds; None: the loop's.
    """

    def __init__(
        self,
        broker: Broker,
        name: str,
        limits: ListenerLimits,
        *,
        protocol: WireProtocol | None = None,
        deadlines: Deadlines,
        send_budget: SendBudget | None = None,
        connection_limit: ConnectionLimit | None = None,
        logger: logging.Logger | None = None,
        now: Callable[[], float] | None = None,
    ) -> None:
        self.broker = broker
        self.name = name
        self.logger = logger or logging.getLogger(f"sparrow.{name}")
        self.loop = asyncio.get_running_loop()
        self.now = now or self.loop.time
        self.deadlines = deadlines
        self.wrong_port = WrongPortReplies(protocol, broker.listener_ports)
        self.receive_budget = ReceiveBudget(limits.receive_budget_bytes)
        self.send_budget = send_budget or SendBudget(limits.send_budget_bytes)
        self.write_high_water_bytes = limits.write_high_water_bytes
        self.open_connections: set[C] = set()
        """Including refused ones, and those being closed."""
        self.is_stopping = False
        self.measures = broker.measures.frontend(name, lambda: self.connections)
        self.measures.peers = lambda: self.open_connections
        self.admission = (connection_limit or ConnectionLimit()).admission(
            lambda: self.connections, limits.max_connections, self.measures.refusals
        )
        self._sweep_interval_s = limits.sweep_interval_ms / 1000
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._all_gone = asyncio.Event()
        self._waiting: dict[Callable[[], None], None] = {}
        """Calls to make when the broker is current again, in this order."""

    def may_answer(self, call: Callable[[], None]) -> bool:
        """Return True if requests may be answered now; if not, see `when_current`."""
        if self.broker.is_current():
            return True
        self.when_current(call)
        return False

    def when_current(self, call: Callable[[], None]) -> None:
        """Call `call` once requests may be answered: the broker may have lost its data to another
        one while it was stopped, and its answers would be old. If that is so, it is not called:
        the server then ends all connections.
        """
        if not self._waiting:
            self.spawn(self._wait_until_current())
        self._waiting[call] = None

    async def _wait_until_current(self) -> None:
        try:
            await self.broker.current()
        except Draining:
            return
        waiting, self._waiting = self._waiting, {}
        for call in waiting:
            call()

    @property
    def connections(self) -> int:
        """The number of open connections, including those being closed."""
        return len(self.open_connections)

    async def listen(
        self,
        make: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int = 0,
        *,
        sock: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> int:
        """Listen on one more address, and return the port (the one that the system chose for
        port 0).

        Args:
            make: creates the protocol of a new connection.

        Raises:
            OSError: the address cannot be listened on.
        """
        options: dict[str, Any] = {"backlog": BACKLOG, **tls_options(tls)}
        if sock is None:
            options |= {"host": host, "port": port}
        server = await self.loop.create_server(make, sock=sock, **options)
        self._servers.append(server)
        if self._sweep_timer is None:
            self._sweep_later()
        bound: int = server.sockets[0].getsockname()[1]
        return bound

    # ── for the connections ───────────────────────────────────────────────────────────────────────

    def admit(self, connection: C) -> SparrowError | None:
        """Count a connection in. Return the error if it may not be served."""
        self.open_connections.add(connection)
        if self.is_stopping:
            return Draining("The broker is shutting down; connect again later.")
        try:
            connection.slot = self.admission.admit(connection.host, connection.turn_away)
        except Overloaded as refusal:  # it is counted, and logged in a summary
            if self.connections - self.admission.count > MAX_REFUSED:
                connection.turn_away()
            return refusal
        return None

    def dismiss(self, connection: C) -> None:
        """Count a connection out."""
        self.open_connections.discard(connection)
        if connection.slot is not None:
            connection.slot.release()
        if not self.connections:
            self._all_gone.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine in the background, independent of any connection."""
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)
        return task

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.logger.error("%s: a task failed", self.name, exc_info=error)

    # ── deadlines ─────────────────────────────────────────────────────────────────────────────────

    def sweep(self) -> None:
        """Check the deadlines of all connections."""
        now = self.now()
        for connection in list(self.open_connections):
            try:
                connection.sweep(now)
            except Exception:
                self.logger.exception("%s: a bug ends the connection of %s", self.name, connection.host)
                connection.abort()

    def _sweep_later(self) -> None:
        self._sweep_timer = self.loop.call_later(self._sweep_interval_s, self._sweep_again)

    def _sweep_again(self) -> None:
        self.sweep()
        self._sweep_later()

    # ── the end: stop, say goodbye, wait, end ─────────────────────────────────────────────────────

    def stop(self) -> None:
        """Accept no more connections."""
        self.is_stopping = True
        for server in self._servers:
            server.close()

    async def wait_until_gone(self, timeout_s: float) -> None:
        """Wait until all connections are closed, at most `timeout_s`."""
        self._all_gone.clear()
        if self.connections:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._all_gone.wait()
            except TimeoutError:
                pass

    async def wait_until(self, is_done: Callable[[], bool], deadline: float) -> None:
        """Wait for a condition until `deadline`, a time of the loop."""
        while self.loop.time() < deadline and not is_done():  # noqa: ASYNC110 - rare
            await asyncio.sleep(POLL_S)

    async def end(self, patience_s: float = LAST_TASKS_S) -> None:
        """Abort the remaining connections, and end what runs in the background.

        Args:
            patience_s: time for tasks to end by themselves; then they are cancelled.
        """
        for connection in list(self.open_connections):
            connection.abort()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        await asyncio.sleep(0)
        if self._tasks:
            _, late = await asyncio.wait(set(self._tasks), timeout=patience_s)
            for task in late:
                task.cancel()
            if late:
                await asyncio.wait(late, timeout=LAST_TASKS_S)
        for server in self._servers:
            await server.wait_closed()
