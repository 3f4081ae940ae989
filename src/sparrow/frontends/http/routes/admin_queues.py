"""Routes of queues: create, describe, configure, pause, purge, delete. Their messages are in
`queues.py`, their subscribers in `admin_subscribers.py`.
"""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from fastapi import APIRouter, Request, Response
from pydantic import Field

from sparrow.frontends.http.fields import Body, Name, Names, Pattern, Policy, QueuePath, Shown, TopicNames
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.jsonroute import JsonRoute
from sparrow.frontends.http.openapi import problems
from sparrow.frontends.http.responses import json_response, no_content

if TYPE_CHECKING:
    from sparrow.broker.queues.description import QueueInfo
    from sparrow.frontends.http.context import HttpContext

_PARTITIONS = Annotated[
    int,
    Field(
        ge=-1, le=1_000_000, description="Partitions of topics that are created; -1: the broker's default."
    ),
]
_TOPICS = Annotated[
    TopicNames, Field(description="Topics whose messages the queue delivers; missing ones are created.")
]
_POLICY = Annotated[
    Policy, Field(description="Settings by name; those that are left out have their defaults.")
]


class QueueMade(Body):
    topics: Annotated[_TOPICS, Field(description="Empty: the topic with the queue's name.")] = Field(
        default_factory=list
    )
    policy: _POLICY = Field(default_factory=dict)
    partitions: _PARTITIONS = -1


class NewQueue(QueueMade):
    name: Name


class QueueSettings(Body):
    set: Policy = Field(default_factory=dict)
    unset: Annotated[Names, Field(description="Settings to reset to their defaults.")] = Field(
        default_factory=list
    )


class ConsumerShown(Shown):
    consumer_id: str
    client_name: str
    subscriber: str
    leased: int


class LaneShown(Shown):
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


class QueueShown(Shown):
    name: str
    id: str
    kind: str
    topics: list[str]
    policy: dict[str, Any]
    is_paused: bool
    statistics: StatisticsShown


class QueueList(Shown):
    queues: list[QueueShown]


class Purged(Shown):
    purged: int


class _Queues:
    def __init__(self, frontend: "HttpContext") -> None:
        self._queues = frontend.broker.queues

    async def list_queues(self, request: Request, pattern: Pattern = "*") -> Response:
        """List the queues whose names match and that you may describe, with their statistics."""
        found = await self._queues.listing_in_steps(pattern, principal=caller(request))
        return json_response({"queues": [shown(each) for each in found]})

    async def create(self, request: Request, body: NewQueue) -> Response:
        """Create a queue. A queue that exists with the same topics and policy stays as it is."""
        return json_response(await self._made(request, body.name, body), 201)

    async def put(self, request: Request, queue: QueuePath, body: QueueMade) -> Response:
        """Create a queue if it does not exist. One that exists with other topics or another policy
        is a conflict.
        """
        return json_response(await self._made(request, queue, body))

    async def _made(self, request: Request, name: str, body: QueueMade) -> dict[str, Any]:
        made = await self._queues.create(
            name, tuple(body.topics), body.policy, partitions=body.partitions, principal=caller(request)
        )
        return shown(made)

    async def describe(self, request: Request, queue: QueuePath) -> Response:
        """Describe a queue: its policy and statistics."""
        return json_response(shown(self._queues.describe(queue, principal=caller(request))))

    async def configure(self, request: Request, queue: QueuePath, body: QueueSettings) -> Response:
        """Change settings of the policy. They apply to everything from now on."""
        changed = await self._queues.configure(queue, body.set, body.unset, principal=caller(request))
        return json_response(shown(changed))

    async def delete(self, request: Request, queue: QueuePath) -> Response:
        """Delete a queue and the state of its messages. The messages stay in their topics."""
        await self._queues.delete(queue, principal=caller(request))
        return no_content()

    async def pause(self, request: Request, queue: QueuePath) -> Response:
        """Stop deliveries until `resume`. Leased messages can still be settled."""
        await self._queues.pause(queue, principal=caller(request))
        return no_content()

    async def resume(self, request: Request, queue: QueuePath) -> Response:
        """Resume deliveries after `pause`."""
        await self._queues.resume(queue, principal=caller(request))
        return no_content()

    async def purge(self, request: Request, queue: QueuePath) -> Response:
        """Finish all messages that are not leased now, and return how many."""
        return json_response({"purged": await self._queues.purge(queue, principal=caller(request))})


def shown(info: "QueueInfo") -> dict[str, Any]:
    """Return a queue as JSON shows it."""
    return {
        "name": info.name,
        "id": info.id,
        "kind": info.kind,
        "topics": list(info.topics),
        "policy": info.policy,
        "is_paused": info.is_paused,
        "statistics": msgspec.to_builtins(info.statistics, str_keys=True),
    }


def router(frontend: "HttpContext") -> APIRouter:
    """Return the routes of queues."""
    routes = _Queues(frontend)
    api = APIRouter(tags=["queues"], route_class=JsonRoute)
    one = "/v1/queues/{queue}"
    wrong = problems(400, 403, 404)
    api.add_api_route(
        "/v1/queues", routes.list_queues, methods=["GET"], response_model=QueueList, responses=problems(400)
    )
    api.add_api_route(
        "/v1/queues",
        routes.create,
        methods=["POST"],
        status_code=201,
        response_model=QueueShown,
        responses=problems(400, 403, 404, 409),
    )
    api.add_api_route(
        one, routes.put, methods=["PUT"], response_model=QueueShown, responses=problems(400, 403, 404, 409)
    )
    api.add_api_route(one, routes.describe, methods=["GET"], response_model=QueueShown, responses=wrong)
    api.add_api_route(
        one,
        routes.configure,
        methods=["PATCH"],
        response_model=QueueShown,
        responses=problems(400, 403, 404, 409),
    )
    api.add_api_route(one, routes.delete, methods=["DELETE"], status_code=204, responses=wrong)
    api.add_api_route(f"{one}/pause", routes.pause, methods=["POST"], status_code=204, responses=wrong)
    api.add_api_route(f"{one}/resume", routes.resume, methods=["POST"], status_code=204, responses=wrong)
    api.add_api_route(f"{one}/purge", routes.purge, methods=["POST"], response_model=Purged, responses=wrong)
    return api
