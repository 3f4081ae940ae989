"""Routes of groups of all kinds: members, offsets and lag; reset and delete."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, StringConstraints

from sparrow.base.errors import DuplicateResource
from sparrow.frontends.http.fields import (
    MAX_NAME_CHARACTERS,
    Body,
    GroupPath,
    Offset,
    Partition,
    Shown,
    TopicName,
)
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.jsonroute import JsonRoute
from sparrow.frontends.http.openapi import problems
from sparrow.frontends.http.responses import json_response, no_content
from sparrow.frontends.http.start_position import START_POSITION_TEXT, parse_start_position

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext

_MAX_OFFSETS = 10_000
_TopicPartition = Annotated[
    list[str | int], Field(min_length=2, max_length=2, description="Topic and partition.")
]


class GroupListed(Shown):
    group: str
    state: str
    members: int
    type: str
    protocol_type: str


class GroupList(Shown):
    groups: list[GroupListed]


class MemberShown(Shown):
    member_id: str
    client_name: str
    topics: list[str]
    epoch: int
    is_attached: bool
    partitions: list[_TopicPartition]
    releasing: list[_TopicPartition]
    instance_id: str | None
    client_host: str


class LagShown(Shown):
    topic: str
    partition: int
    offset: int
    end_offset: int
    lag: int
    metadata: str


class GroupShown(Shown):
    group: str
    state: str
    epoch: int
    members: list[MemberShown]
    offsets: list[LagShown]
    type: str


class CommittedShown(Shown):
    topic: str
    partition: int
    offset: int
    metadata: str


class CommittedList(Shown):
    offsets: list[CommittedShown]


class GroupPlaceShown(Shown):
    topic: str
    partition: int
    offset: int


class PlaceList(Shown):
    offsets: list[GroupPlaceShown]


class Committed(Body):
    topic: TopicName
    partition: Partition
    offset: Offset
    metadata: Annotated[str, StringConstraints(max_length=100_000)] = ""


class Commits(Body):
    offsets: Annotated[list[Committed], Field(max_length=_MAX_OFFSETS)]


class Reset(Body):
    topic: TopicName
    to: Annotated[str | int, Field(description=f"New position: {START_POSITION_TEXT}")]
    partitions: Annotated[
        list[Partition], Field(max_length=_MAX_OFFSETS, description="Only these; empty: all.")
    ] = Field(default_factory=list)


class _Groups:
    def __init__(self, frontend: "HttpContext") -> None:
        self._broker = frontend.broker

    async def list_groups(self, request: Request) -> Response:
        """List the groups that you may describe. Share groups are listed as queues, too."""
        found = self._broker.group_service.list_groups(principal=caller(request))
        return json_response({"groups": [msgspec.to_builtins(each) for each in found]})

    async def describe(self, request: Request, group: GroupPath) -> Response:
        """Describe a group: its members, offsets and lag."""
        return json_response(
            msgspec.to_builtins(await self._broker.group_admin.report(group, principal=caller(request)))
        )

    async def delete(self, request: Request, group: GroupPath) -> Response:
        """Delete a group without members, and its offsets."""
        await self._broker.group_admin.delete(group, principal=caller(request))
        return no_content()

    async def offsets(
        self,
        request: Request,
        group: GroupPath,
        topic: Annotated[str, Query(description="Only this topic.", max_length=MAX_NAME_CHARACTERS)] = "",
    ) -> Response:
        """Return the committed offsets of a group."""
        topics = [topic] if topic else []
        found = self._broker.group_admin.fetch_offsets(group, topics, principal=caller(request))
        return json_response({"offsets": [msgspec.to_builtins(each) for each in found]})

    async def commit(self, request: Request, group: GroupPath, body: Commits) -> Response:
        """Commit offsets for a group without members. They are on stable storage when the response
        arrives.
        """
        offsets = {(each.topic, each.partition): (each.offset, each.metadata) for each in body.offsets}
        if len(offsets) < len(body.offsets):
            raise DuplicateResource("a partition is named twice; name each once")
        await self._broker.commit_offsets(group, offsets, principal=caller(request))
        return no_content()

    async def reset(self, request: Request, group: GroupPath, body: Reset) -> Response:
        """Set the offsets of a group without members in a topic, and return them."""
        start = parse_start_position(str(body.to))
        moved = await self._broker.group_admin.reset(
            group, body.topic, start.at, start.value, body.partitions, principal=caller(request)
        )
        return json_response({"offsets": [{"topic": t, "partition": p, "offset": o} for t, p, o in moved]})


def router(frontend: "HttpContext") -> APIRouter:
    """Return the routes of groups."""
    routes = _Groups(frontend)
    api = APIRouter(tags=["groups"], route_class=JsonRoute)
    one = "/v1/groups/{group}"
    api.add_api_route(
        "/v1/groups", routes.list_groups, methods=["GET"], response_model=GroupList, responses=problems()
    )
    api.add_api_route(
        one, routes.describe, methods=["GET"], response_model=GroupShown, responses=problems(400, 403, 404)
    )
    api.add_api_route(
        one, routes.delete, methods=["DELETE"], status_code=204, responses=problems(400, 403, 404, 409)
    )
    api.add_api_route(
        f"{one}/offsets",
        routes.offsets,
        methods=["GET"],
        response_model=CommittedList,
        responses=problems(400, 403, 404),
    )
    api.add_api_route(
        f"{one}/offsets",
        routes.commit,
        methods=["PUT"],
        status_code=204,
        responses=problems(400, 403, 404, 409),
    )
    api.add_api_route(
        f"{one}/reset",
        routes.reset,
        methods=["POST"],
        response_model=PlaceList,
        responses=problems(400, 403, 404, 409),
    )
    return api
