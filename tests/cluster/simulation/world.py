"""The scheduler, the faults, and the verdict."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from sparrow.base.errors import ConcurrentTransactions, NotFound, SparrowError, Unavailable
from sparrow.broker.broker import Broker
from sparrow.cluster.ledger_model import LedgerState
from tests.cluster.simulation.clients import CLIENTS, TIMEOUT_S, Client, Unanswered
from tests.cluster.simulation.loops import SimulatedLoop, SimulatedTime
from tests.cluster.simulation.nodes import Node

T = TypeVar("T")
NODES = 2
MAX_ITERATIONS = 400_000
FAULTS = (
    "kill",
    "stop",
    "pause",
    "long pause",
    "ledger",
    "objects",
    "responses",
    "weather",
    "session",
    "clock",
)
JUMPS_S = (-7200, -60, -1, 0, 1, 60, 7200)
"""Seconds by which the clock of a machine is ahead after a jump. Owners go by the ledger's."""
CALM_S = 15.0
"""Longer than a lease of the shard: by then one node serves."""


class World:
    """A cluster of two nodes, and its clients.

    Args:
        seconds: how long faults come.
    """

    def __init__(self, seed: int, seconds: float = 30.0) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.time = SimulatedTime()
        self.ledger = LedgerState(self.time)
        self.ledger.up_since_ms = self.time.wall_ms() - 3_600_000
        self.content: dict[str, bytes] = {}
        self.cache_bytes = self.random.choice([2_000, 64 << 20])
        self.is_calm = False
        """True at the end: clients finish what they have begun."""
        self.notes: list[str] = []
        self.takes = 0
        self._seconds = seconds
        self._loop = SimulatedLoop(self.time)
        self._lost_responses = 0.0
        self.nodes = [Node(self, self.random.getrandbits(32)) for _ in range(NODES)]
        self._gone: list[Node] = []

    def note(self, text: str) -> None:
        """Remember what happens, for a report of a failure."""
        self.notes.append(f"{self.time.now:9.3f} {text}")

    # ── the scheduler ──

    def run(self) -> None:
        """Let faults come, let everything heal, and check.

        Raises:
            AssertionError: something was promised and not kept.
        """
        try:
            self._run(self._live())
            for node in self.nodes:
                node.kill()
            self._gone += self.nodes
            self.nodes = [Node(self, self.random.getrandbits(32))]
            self._run(self._judge())
            lost = [error for node in [*self.nodes, *self._gone] for error in node.loop.errors]
            assert not lost, lost
        except BaseException as error:
            error.add_note("\n".join([f"seed {self.seed}", *self.notes[-40:]]))
            raise
        finally:
            for node in [*self.nodes, *self._gone]:
                node.clean_up()
            self._clean_up()

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        for _ in range(MAX_ITERATIONS):
            if task.done():
                task.result()
                return
            running = [self._loop, *(node.loop for node in self.nodes if node.is_running)]
            ready = [loop for loop in running if loop.has_work]
            if ready:
                self.random.choice(ready).run_once()
            else:
                wakes = [loop.next_at for loop in running]
                wakes += [node.resumes_at for node in self.nodes if not node.is_running and not node.is_dead]
                self.time.now = max(self.time.now, min(wakes))
        raise AssertionError("the simulation does not end")

    def _clean_up(self) -> None:
        for _ in range(50):
            left = asyncio.all_tasks(self._loop)
            if not left:
                break
            for task in left:
                self._loop.call_soon(task.cancel)
            self._loop.run_once()
        self._loop.close()

    # ── requests of clients ──

    async def ask(self, work: Callable[[Broker], Awaitable[T]]) -> T:
        """Send a request to the broker that serves.

        Raises:
            Unanswered: it was lost, or its response was; or the broker refused it for now.
            SparrowError: it was refused for good.
        """
        serving = [node for node in self.nodes if node.broker is not None and not node.is_dead]
        if not serving:
            await asyncio.sleep(0.1)
            raise Unanswered
        node = self.random.choice(serving)
        broker = node.broker
        assert broker is not None
        response: asyncio.Future[T] = self._loop.create_future()

        async def serve() -> None:
            try:
                # As the frontends do: nothing is answered from memory that may be old.
                while not broker.is_current():
                    await broker.current()
                result = await work(broker)
            except Exception as error:
                self._loop.call_soon(_answer, response, None, error)
            else:
                self._loop.call_soon(_answer, response, result, None)

        node.loop.call_soon(lambda: node.loop.create_task(serve()))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                result = await response
        except TimeoutError:
            raise Unanswered from None
        except (Unavailable, NotFound, ConcurrentTransactions) as error:
            raise Unanswered from error
        if self.random.random() < self._lost_responses:
            raise Unanswered
        return result

    async def again(self, work: Callable[[Broker], Awaitable[T]]) -> T:
        """Send a request until it is answered."""
        while True:
            try:
                return await self.ask(work)
            except Unanswered:
                await asyncio.sleep(0.1 + self.random.random() * 0.3)

    # ── the story ──

    async def _live(self) -> None:
        clients = [make(self) for make in CLIENTS]
        self.clients = clients
        for client in clients:
            await self._prepare(client)
        tasks = [asyncio.ensure_future(client.run()) for client in clients]
        faults = asyncio.ensure_future(self._disturb())
        done, _ = await asyncio.wait([*tasks, faults], return_when=asyncio.FIRST_EXCEPTION)
        for each in done:
            each.result()

    async def _prepare(self, client: Client) -> None:
        while True:
            try:
                await self.ask(client.prepare)
                return
            except Unanswered:
                await asyncio.sleep(0.2)
            except SparrowError as error:  # it was done before
                self.note(f"prepared: {error.text}")
                return

    async def _disturb(self) -> None:
        until = self.time.now + self._seconds
        while self.time.now < until:
            await asyncio.sleep(self.random.random() * 4)
            self._fault()
        self._heal()
        self.note("calm")
        await asyncio.sleep(CALM_S)
        self.is_calm = True

    def _fault(self) -> None:
        chosen = self.random
        node = chosen.choice(self.nodes)
        what = chosen.choice(FAULTS)
        self.note(f"{what}: {node}")
        if what == "kill":
            node.kill()
            self._replace(node)
        elif what == "stop":
            if not node.is_running:
                return
            node.stop()
            node.ended.add_done_callback(lambda _: self._loop.call_soon(self._replace, node))
        elif what == "pause":
            node.resumes_at = self.time.now + chosen.random() * 2
        elif what == "long pause":
            node.resumes_at = self.time.now + 5 + chosen.random() * 20
        elif what == "ledger":
            self.ledger.is_down = True
            self._loop.call_later(chosen.choice([0.3, 3, 15]) * chosen.random(), self._restart_ledger)
        elif what == "objects":
            for each in self.nodes:
                each.objects.is_down = True
            self._loop.call_later(chosen.choice([0.3, 5]) * chosen.random(), self._restart_objects)
        elif what == "responses":
            self._lost_responses = chosen.choice([0.0, 0.2])
        elif what == "weather":
            node.ledger.with_faults(
                lost_requests=chosen.choice([0.0, 0.1]),
                lost_responses=chosen.choice([0.0, 0.2]),
                disk_full=chosen.choice([0.0, 0.0, 0.1]),
            )
            node.objects.with_faults(
                failed=chosen.choice([0.0, 0.3]), stored_but_error=chosen.choice([0.0, 0.3])
            )
        elif what == "session":
            node.ledger.disconnect(node.loop.call_soon)
        elif what == "clock":
            node.clock.ahead_ms = 1000 * chosen.choice(JUMPS_S)

    def _replace(self, node: Node) -> None:
        """Start a new process in the place of one that ended."""
        if node not in self.nodes:
            return
        node.is_dead = True
        self._gone.append(node)
        fresh = Node(self, self.random.getrandbits(32))
        fresh.resumes_at = self.time.now + 3 * self.random.random()
        self.nodes[self.nodes.index(node)] = fresh

    def _restart_ledger(self) -> None:
        self.ledger.is_down = False
        if self.random.random() < 0.5:
            self.ledger.up_since_ms = self.time.wall_ms()
            for node in self.ledger.nodes.values():
                node.is_connected = False

    def _restart_objects(self) -> None:
        for each in self.nodes:
            each.objects.is_down = False

    def _heal(self) -> None:
        self.ledger.is_down = False
        self._lost_responses = 0.0
        for node in self.nodes:
            node.resumes_at = self.time.now
            node.objects.is_down = False
            node.clock.ahead_ms = 0
            node.ledger.with_faults(lost_requests=0.0, lost_responses=0.0, disk_full=0.0)
            node.objects.with_faults(failed=0.0, stored_but_error=0.0)

    async def _judge(self) -> None:
        (node,) = self.nodes
        while node.broker is None:
            await asyncio.sleep(0.1)
        broker = node.broker
        for client in self.clients:
            judged = self._loop.create_future()

            async def judge(client: Client = client, judged: asyncio.Future[None] = judged) -> None:
                try:
                    await client.judge(broker)
                except Exception as error:
                    self._loop.call_soon(_answer, judged, None, error)
                else:
                    self._loop.call_soon(_answer, judged, None, None)

            node.loop.call_soon(lambda work=judge: node.loop.create_task(work()))
            await judged
        epochs = self.ledger.shards[0].epoch
        self.takes = epochs


def _answer(response: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if response.done():
        return
    if error is not None:
        response.set_exception(error)
    else:
        response.set_result(result)
