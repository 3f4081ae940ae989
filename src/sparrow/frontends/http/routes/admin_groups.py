"""Groups of all kinds: who is in them, what they have read, how far they are behind; reset and deleted."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field, StringConstraints

from sparrow.base.errors import DuplicateResource
from sparrow.frontends.http.answers import json_answer, no_content
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
from sparrow.frontends.http.places import PLACE_TEXT, parse_place

if TYPE_CHECKING:
    from sparrow.frontends.http.frontend import HttpFrontend

_MAX_OFFSETS = 10_000
_Place = Annotated[list[str | int], Field(min_length=2, max_length=2, description="Topic and partition.")]


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
    partitions: list[_Place]
    releasing: list[_Place]
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
    to: Annotated[str | int, Field(description=f"Where it goes on: {PLACE_TEXT}")]
    partitions: Annotated[
        list[Partition], Field(max_length=_MAX_OFFSETS, description="Those alone; none named: all.")
    ] = Field(default_factory=list)


class _Groups:
    def __init__(self, door: "HttpFrontend") -> None:
        self._broker = door.broker

    async def list_groups(self, request: Request) -> Response:
        """The groups that you may describe. Share groups are queues, too."""
        found = self._broker.list_groups(principal=caller(request))
        return json_answer({"groups": [msgspec.to_builtins(each) for each in found]})

    async def describe(self, request: Request, group: GroupPath) -> Response:
        """A group with its members, its offsets and how far it is behind."""
        return json_answer(
            msgspec.to_builtins(await self._broker.report_group(group, principal=caller(request)))
        )

    async def delete(self, request: Request, group: GroupPath) -> Response:
        """Forget a group without members, and its offsets."""
        await self._broker.delete_group(group, principal=caller(request))
        return no_content()

    async def offsets(
        self,
        request: Request,
        group: GroupPath,
        topic: Annotated[str, Query(description="Of this topic alone.", max_length=MAX_NAME_CHARACTERS)] = "",
    ) -> Response:
        """What a group has committed."""
        topics = [topic] if topic else []
        found = self._broker.fetch_offsets(group, topics, principal=caller(request))
        return json_answer({"offsets": [msgspec.to_builtins(each) for each in found]})

    async def commit(self, request: Request, group: GroupPath, body: Commits) -> Response:
        """Commit offsets for a group without members; they are on stable storage when the answer comes."""
        offsets = {(each.topic, each.partition): (each.offset, each.metadata) for each in body.offsets}
        if len(offsets) < len(body.offsets):
            raise DuplicateResource("a partition is named twice; name each once")
        await self._broker.commit_offsets(group, offsets, principal=caller(request))
        return no_content()

    async def reset(self, request: Request, group: GroupPath, body: Reset) -> Response:
        """Let a group without members go on elsewhere in a topic; the answer tells the offsets."""
        place = parse_place(str(body.to))
        moved = await self._broker.reset_group(
            group, body.topic, place.at, place.value, body.partitions, principal=caller(request)
        )
        return json_answer({"offsets": [{"topic": t, "partition": p, "offset": o} for t, p, o in moved]})


def router(door: "HttpFrontend") -> APIRouter:
    """The routes of groups."""
    routes = _Groups(door)
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
