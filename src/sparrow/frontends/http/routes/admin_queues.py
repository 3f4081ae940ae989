"""Routes of queues: create, describe, configure, pause, purge, delete. Their messages are in
`queues.py`, their subscribers in `admin_subscribers.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

from msgspec import Meta, Struct, field

from sparrow.frontends.http.arguments import operation
from sparrow.frontends.http.fields import Body, Listing, Name, Names, Policy, TopicNames
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.responses import json_response, no_content

if TYPE_CHECKING:
    from sparrow.broker.queues.description import QueueInfo
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.responses import Response
    from sparrow.frontends.http.router import Route

_TAG: Final = "queues"
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


class ConsumerShown(Struct):
    consumer_id: str
    client_name: str
    subscriber: str
    leased: int


class LaneShown(Struct):
    ready: int
    leased: int
    delayed: int
    blocked: int


class StatisticsShown(LaneShown):
    moving: int
    unfinished: int
    oldest_ms: int
    oldest_by_priority: dict[str, int]
    dead: int
    delivered: int
    redelivered: int
    acknowledged: int
    rejected: int
    dead_lettered: int
    expired: int
    dropped: int
    lost: int
    published_rate: float
    delivered_rate: float
    acknowledged_rate: float
    consumers: list[ConsumerShown]
    subscribers: dict[str, LaneShown]


class QueueShown(Struct):
    name: str
    id: str
    kind: str
    topics: list[str]
    policy: dict[str, Any]
    is_paused: bool
    statistics: StatisticsShown


class QueueList(Struct):
    queues: list[QueueShown]


class Purged(Struct):
    purged: int


class _Queues:
    def __init__(self, frontend: HttpContext) -> None:
        self._queues = frontend.broker.queues

    async def list_queues(self, request: Request, by: Listing) -> Response:
        """List the queues whose names match and that you may describe, with their statistics."""
        found = await self._queues.listing_in_steps(by.pattern, principal=caller(request))
        return json_response({"queues": [shown(each) for each in found]})

    async def create(self, request: Request, body: NewQueue) -> Response:
        """Create a queue. A queue that exists with the same topics and policy stays as it is."""
        return json_response(await self._made(request, body.name, body), 201)

    async def put(self, request: Request, queue: str, body: QueueMade) -> Response:
        """Create a queue if it does not exist. One that exists with other topics or another policy
        is a conflict.
        """
        return json_response(await self._made(request, queue, body))

    async def _made(self, request: Request, name: str, body: QueueMade) -> dict[str, Any]:
        made = await self._queues.create(
            name, tuple(body.topics), body.policy, partitions=body.partitions, principal=caller(request)
        )
        return shown(made)

    async def describe(self, request: Request, queue: str) -> Response:
        """Describe a queue: its policy and statistics."""
        return json_response(shown(self._queues.describe(queue, principal=caller(request))))

    async def configure(self, request: Request, queue: str, body: QueueSettings) -> Response:
        """Change settings of the policy. They apply to everything from now on."""
        changed = await self._queues.configure(queue, body.set, body.unset, principal=caller(request))
        return json_response(shown(changed))

    async def delete(self, request: Request, queue: str) -> Response:
        """Delete a queue and the state of its messages. The messages stay in their topics."""
        await self._queues.delete(queue, principal=caller(request))
        return no_content()

    async def pause(self, request: Request, queue: str) -> Response:
        """Stop deliveries until `resume`. Leased messages can still be settled."""
        await self._queues.pause(queue, principal=caller(request))
        return no_content()

    async def resume(self, request: Request, queue: str) -> Response:
        """Resume deliveries after `pause`."""
        await self._queues.resume(queue, principal=caller(request))
        return no_content()

    async def purge(self, request: Request, queue: str) -> Response:
        """Finish all messages that are not leased now, and return how many."""
        return json_response({"purged": await self._queues.purge(queue, principal=caller(request))})


def shown(info: QueueInfo) -> dict[str, Any]:
    """Return a queue as JSON shows it."""
    return {
        "name": info.name,
        "id": info.id,
        "kind": info.kind,
        "topics": list(info.topics),
        "policy": info.policy,
        "is_paused": info.is_paused,
        "statistics": info.statistics,
    }


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of queues."""
    queues = _Queues(frontend)
    one = "/v1/queues/{queue}"
    wrong = (403, 404)
    return [
        operation("GET", "/v1/queues", queues.list_queues, tag=_TAG, query=Listing, result=QueueList),
        operation(
            "POST",
            "/v1/queues",
            queues.create,
            tag=_TAG,
            body=NewQueue,
            result=QueueShown,
            status=201,
            refusals=(*wrong, 409),
        ),
        operation(
            "PUT", one, queues.put, tag=_TAG, body=QueueMade, result=QueueShown, refusals=(*wrong, 409)
        ),
        operation("GET", one, queues.describe, tag=_TAG, result=QueueShown, refusals=wrong),
        operation(
            "PATCH",
            one,
            queues.configure,
            tag=_TAG,
            body=QueueSettings,
            result=QueueShown,
            refusals=(*wrong, 409),
        ),
        operation("DELETE", one, queues.delete, tag=_TAG, status=204, refusals=wrong),
        operation("POST", f"{one}/pause", queues.pause, tag=_TAG, status=204, refusals=wrong),
        operation("POST", f"{one}/resume", queues.resume, tag=_TAG, status=204, refusals=wrong),
        operation("POST", f"{one}/purge", queues.purge, tag=_TAG, result=Purged, refusals=wrong),
    ]
