"""Sparrow in a FastAPI application: one client for its lifetime, as a dependency.

broker = SparrowLifespan("sparrow://127.0.0.1:9094")
app = FastAPI(lifespan=broker)

@app.post("/orders")
async def order(body: Order, client: SparrowClient) -> None:
    await client.publish("orders", body.model_dump_json().encode())
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any

from sparrow.client.client import Client, connect
from sparrow.client.queue import Queue  # noqa: TC001 - FastAPI reads it

try:
    from fastapi import Depends, FastAPI
    from fastapi.requests import HTTPConnection  # noqa: TC002 - FastAPI reads it
except ImportError as error:
    raise ImportError(
        "sparrow.integrations.fastapi needs FastAPI; install it: pip install fastapi"
    ) from error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from contextlib import AbstractAsyncContextManager

    from sparrow.client.policy import Policy

_STATE, _QUEUES = "sparrow", "sparrow_queues"
"""Names in the state of the application."""


class SparrowLifespan:
    """The lifespan of an application that connects at its start and closes at its end.

    Args:
        url: of the Sparrow broker.
        inner: another lifespan, which runs while the client is connected.
        options: of `sparrow.connect`, such as `token`.
    """

    def __init__(
        self,
        url: str,
        *,
        inner: Callable[[FastAPI], AbstractAsyncContextManager[Any]] | None = None,
        **options: Any,
    ) -> None:
        self._url = url
        self._inner = inner
        self._options = options

    @asynccontextmanager
    async def __call__(self, app: FastAPI) -> AsyncIterator[Any]:
        """Connect while the application runs."""
        async with connect(self._url, **self._options) as client:
            setattr(app.state, _STATE, client)
            setattr(app.state, _QUEUES, {})
            try:
                if self._inner is None:
                    yield
                else:
                    async with self._inner(app) as state:
                        yield state
            finally:
                delattr(app.state, _STATE)


def sparrow_client(connection: HTTPConnection) -> Client:
    """Return the client of the application.

    Raises:
        RuntimeError: the application has no `SparrowLifespan`.
    """
    client = getattr(connection.app.state, _STATE, None)
    if not isinstance(client, Client):
        raise RuntimeError(  # noqa: TRY004 - the application is wrong, not a type
            "the application has no Sparrow client; create it as FastAPI(lifespan=SparrowLifespan(url))"
        )
    return client


SparrowClient = Annotated[Client, Depends(sparrow_client)]
"""The type of a parameter that gets the client."""


def sparrow_queue(name: str, *, policy: Policy | None = None) -> Any:
    """Return a dependency for a queue: `emails: Annotated[Queue, sparrow_queue("emails")]`.

    The queue is made, or its settings changed, before its first use.
    """

    def queue(connection: HTTPConnection) -> Queue:
        client = sparrow_client(connection)
        queues: dict[str, Queue] = getattr(connection.app.state, _QUEUES)
        if name not in queues:
            queues[name] = client.queue(name, policy=policy)
        return queues[name]

    return Depends(queue)
