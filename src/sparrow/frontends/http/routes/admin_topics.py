"""Routes of topics: create, describe, configure, grow, truncate and delete."""

from typing import TYPE_CHECKING, Annotated

import msgspec
from fastapi import APIRouter, Query, Request, Response
from pydantic import Field

from sparrow.frontends.http.fields import (
    MAX_ENTRIES,
    Body,
    Config,
    Names,
    PartitionKey,
    Pattern,
    Shown,
    TopicName,
    TopicPath,
    config_texts,
)
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.jsonroute import JsonRoute
from sparrow.frontends.http.openapi import problems
from sparrow.frontends.http.responses import json_response, no_content
from sparrow.frontends.http.start_position import START_POSITION_TEXT, parse_start_position

if TYPE_CHECKING:
    from sparrow.broker.topics import TopicInfo
    from sparrow.frontends.http.context import HttpContext

_ALL_PARTITIONS = -1


class NewTopic(Body):
    name: TopicName
    partitions: Annotated[int, Field(ge=-1, le=1_000_000, description="-1: the broker's default.")] = -1
    config: Annotated[Config, Field(description="Settings by Kafka's names, such as retention.ms.")] = Field(
        default_factory=dict
    )
    validate_only: Annotated[bool, Field(description="Only check that it could be created.")] = False


class TopicSettings(Body):
    set: Config = Field(default_factory=dict)
    unset: Annotated[Names, Field(description="Settings to reset to their defaults.")] = Field(
        default_factory=list
    )


class Growth(Body):
    total: Annotated[int, Field(ge=1, le=1_000_000, description="New number of partitions.")]


class Truncation(Body):
    before: Annotated[
        dict[PartitionKey, Annotated[int, Field(ge=-1, lt=1 << 62)]],
        Field(
            max_length=MAX_ENTRIES * 100,
            description="Partition → offset: records before it are deleted. -1: all records.",
        ),
    ]


class PartitionShown(Shown):
    partition: int
    start_offset: int
    end_offset: int
    bytes: int


class SettingShown(Shown):
    name: str
    value: str
    default: str
    source: str
    unit: str
    help: str


class TopicListed(Shown):
    name: str
    id: str
    partition_count: int


class TopicShown(TopicListed):
    partitions: list[PartitionShown]
    config: list[SettingShown]


class TopicList(Shown):
    topics: list[TopicListed]


class TopicPlaceShown(Shown):
    partition: int
    offset: int
    timestamp_ms: int


class OffsetList(Shown):
    offsets: list[TopicPlaceShown]


class Starts(Shown):
    starts: dict[str, int]


class _Topics:
    def __init__(self, frontend: "HttpContext") -> None:
        self._broker = frontend.broker

    async def list_topics(self, request: Request, pattern: Pattern = "*") -> Response:
        """List the topics whose names match and that you may describe."""
        found = await self._broker.topic_service.list_topics_in_slices(pattern, principal=caller(request))
        return json_response({"topics": [_listed(each) for each in found]})

    async def create(self, request: Request, body: NewTopic) -> Response:
        """Create a topic. It is on stable storage when the response arrives."""
        made = await self._broker.create_topic(
            body.name,
            body.partitions,
            config_texts(body.config),
            validate_only=body.validate_only,
            principal=caller(request),
        )
        return json_response(_shown(made), 200 if body.validate_only else 201)

    async def describe(self, request: Request, topic: TopicPath) -> Response:
        """Describe a topic: its partitions, and its settings if you may see those."""
        await self._broker.topic_service.open(topic, principal=caller(request))
        return json_response(_shown(self._broker.describe_topic(topic, principal=caller(request))))

    async def configure(self, request: Request, topic: TopicPath, body: TopicSettings) -> Response:
        """Change settings. They apply immediately."""
        changed = await self._broker.configure_topic(
            topic, config_texts(body.set), body.unset, principal=caller(request)
        )
        return json_response(_shown(changed))

    async def delete(self, request: Request, topic: TopicPath) -> Response:
        """Delete a topic, its records, and the offsets that groups have committed for it."""
        await self._broker.delete_topic(topic, principal=caller(request))
        return no_content()

    async def add_partitions(self, request: Request, topic: TopicPath, body: Growth) -> Response:
        """Add partitions to a topic. Keys go to other partitions from then on."""
        grown = await self._broker.add_partitions(topic, body.total, principal=caller(request))
        return json_response(_shown(grown))

    async def truncate(self, request: Request, topic: TopicPath, body: Truncation) -> Response:
        """Delete the oldest records, and return the first offset of each partition."""
        starts = await self._broker.delete_records(topic, body.before, principal=caller(request))
        return json_response({"starts": {str(partition): start for partition, start in starts.items()}})

    async def offsets(
        self,
        request: Request,
        topic: TopicPath,
        at: Annotated[str, Query(description=START_POSITION_TEXT, max_length=100)] = "end",
        partition: Annotated[
            int, Query(ge=_ALL_PARTITIONS, lt=1 << 31, description="-1: all.")
        ] = _ALL_PARTITIONS,
    ) -> Response:
        """Look up a start position in each partition; the offset is -1 where no record is that
        late.
        """
        start = parse_start_position(at, offsets=False)
        found = await self._broker.record_service.offsets(
            topic, start.at, start.value, partition, principal=caller(request)
        )
        return json_response(
            {"offsets": [{"partition": p, "offset": o, "timestamp_ms": t} for p, o, t in found]}
        )


def _listed(info: "TopicInfo") -> dict[str, object]:
    return {"name": info.name, "id": str(info.id), "partition_count": info.partition_count}


def _shown(info: "TopicInfo") -> dict[str, object]:
    return {
        **_listed(info),
        "partitions": msgspec.to_builtins(info.partitions),
        "config": msgspec.to_builtins(info.config),
    }


def router(frontend: "HttpContext") -> APIRouter:
    """Return the routes of topics, except those of their messages."""
    routes = _Topics(frontend)
    api = APIRouter(tags=["topics"], route_class=JsonRoute)
    api.add_api_route(
        "/v1/topics", routes.list_topics, methods=["GET"], response_model=TopicList, responses=problems(400)
    )
    api.add_api_route(
        "/v1/topics",
        routes.create,
        methods=["POST"],
        status_code=201,
        response_model=TopicShown,
        responses=problems(400, 403, 409)
        | {200: {"model": TopicShown, "description": "It could be created (`validate_only`)."}},
    )
    api.add_api_route(
        "/v1/topics/{topic}",
        routes.describe,
        methods=["GET"],
        response_model=TopicShown,
        responses=problems(400, 403, 404),
    )
    api.add_api_route(
        "/v1/topics/{topic}",
        routes.configure,
        methods=["PATCH"],
        response_model=TopicShown,
        responses=problems(400, 403, 404),
    )
    api.add_api_route(
        "/v1/topics/{topic}",
        routes.delete,
        methods=["DELETE"],
        status_code=204,
        responses=problems(400, 403, 404, 409),
    )
    api.add_api_route(
        "/v1/topics/{topic}/partitions",
        routes.add_partitions,
        methods=["POST"],
        response_model=TopicShown,
        responses=problems(400, 403, 404),
    )
    api.add_api_route(
        "/v1/topics/{topic}/truncate",
        routes.truncate,
        methods=["POST"],
        response_model=Starts,
        responses=problems(400, 403, 404, 409),
    )
    api.add_api_route(
        "/v1/topics/{topic}/offsets",
        routes.offsets,
        methods=["GET"],
        response_model=OffsetList,
        responses=problems(400, 403, 404),
    )
    return api
