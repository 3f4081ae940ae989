"""Routes of queues: create, describe, configure, pause, purge, delete. Their messages are in
`queues.py`, their subscribers in `admin_subscribers.py`.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct, field

from sparrow.frontends.http.arguments import CONFLICTING, operation
from sparrow.frontends.http.fields import Body, Listing, Name, Names, Policy, TopicNames
from sparrow.frontends.http.identity import caller
from sparrow.model.queues import QueueDescription

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.router import Route

_PARTITIONS = Annotated[
    int,
    Meta(ge=-1, le=1_000_000, description="Partitions of topics that are created; -1: the broker's default."),
]
_TOPICS = Annotated[
    TopicNames, Meta(description="Topics whose messages the queue delivers; missing ones are created.")
]
_POLICY = Annotated[
    Policy, Meta(description="Settings by name; those that are left out have their defaults.")
]


class QueueMade(Body):
    topics: Annotated[_TOPICS, Meta(description="Empty: the topic with the queue's name.")] = field(
        default_factory=list
    )
    policy: _POLICY = field(default_factory=dict)
    partitions: _PARTITIONS = -1


class NewQueue(QueueMade, kw_only=True):
    name: Name


class QueueSettings(Body):
    set: Policy = field(default_factory=dict)
    unset: Annotated[Names, Meta(description="Settings to reset to their defaults.")] = field(
        default_factory=list
    )


class QueueList(Struct):
    queues: list[QueueDescription]


class Purged(Struct):
    purged: int


class _Queues:
    def __init__(self, frontend: HttpContext) -> None:
        self._queues = frontend.broker.queues

    async def list_queues(self, request: Request, by: Listing) -> object:
        """List the queues whose names match and that you may describe, with their statistics."""
        found = await self._queues.listing_in_steps(by.pattern, principal=caller(request))
        return {"queues": found}

    async def create(self, request: Request, body: NewQueue) -> object:
        """Create a queue. A queue that exists with the same topics and policy stays as it is."""
        return await self._made(request, body.name, body)

    async def put(self, request: Request, queue: str, body: QueueMade) -> object:
        """Create a queue if it does not exist. One that exists with other topics or another policy
        is a conflict.
        """
        return await self._made(request, queue, body)

    async def _made(self, request: Request, name: str, body: QueueMade) -> QueueDescription:
        return await self._queues.create(
            name, tuple(body.topics), body.policy, partitions=body.partitions, principal=caller(request)
        )

    async def describe(self, request: Request, queue: str) -> object:
        """Describe a queue: its policy and statistics."""
        return self._queues.describe(queue, principal=caller(request))

    async def configure(self, request: Request, queue: str, body: QueueSettings) -> object:
        """Change settings of the policy. They apply to everything from now on."""
        return await self._queues.configure(queue, body.set, body.unset, principal=caller(request))

    async def delete(self, request: Request, queue: str) -> None:
        """Delete a queue and the state of its messages. The messages stay in their topics."""
        await self._queues.delete(queue, principal=caller(request))

    async def pause(self, request: Request, queue: str) -> None:
        """Stop deliveries until `resume`. Leased messages can still be settled."""
        await self._queues.pause(queue, principal=caller(request))

    async def resume(self, request: Request, queue: str) -> None:
        """Resume deliveries after `pause`."""
        await self._queues.resume(queue, principal=caller(request))

    async def purge(self, request: Request, queue: str) -> object:
        """Finish all messages that are not leased now, and return how many."""
        return {"purged": await self._queues.purge(queue, principal=caller(request))}


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of queues."""
    queues = _Queues(frontend)
    serve = partial(operation, tag="queues")
    one = "/v1/queues/{queue}"
    return [
        serve("GET", "/v1/queues", queues.list_queues, QueueList, query=Listing, refusals=()),
        serve(
            "POST",
            "/v1/queues",
            queues.create,
            QueueDescription,
            body=NewQueue,
            status=201,
            refusals=CONFLICTING,
        ),
        serve("PUT", one, queues.put, QueueDescription, body=QueueMade, refusals=CONFLICTING),
        serve("GET", one, queues.describe, QueueDescription),
        serve("PATCH", one, queues.configure, QueueDescription, body=QueueSettings, refusals=CONFLICTING),
        serve("DELETE", one, queues.delete, status=204),
        serve("POST", f"{one}/pause", queues.pause, status=204),
        serve("POST", f"{one}/resume", queues.resume, status=204),
        serve("POST", f"{one}/purge", queues.purge, Purged),
    ]
