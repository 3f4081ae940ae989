"""Routes of topics: create, describe, configure, grow, truncate and delete."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct, field

from sparrow.frontends.http.arguments import CONFLICTING, operation
from sparrow.frontends.http.fields import (
    MAX_ENTRIES,
    Body,
    Config,
    Listing,
    Names,
    Partition,
    TopicName,
    config_texts,
)
from sparrow.frontends.http.identity import caller
from sparrow.frontends.http.responses import json_response
from sparrow.frontends.http.start_position import START_POSITION_TEXT, parse_start_position
from sparrow.model.topics import TopicDescription, TopicListing

if TYPE_CHECKING:
    from sparrow.frontends.http.context import HttpContext
    from sparrow.frontends.http.request import Request
    from sparrow.frontends.http.responses import Response
    from sparrow.frontends.http.router import Route

_ALL_PARTITIONS: Final = -1


class NewTopic(Body):
    name: TopicName
    partitions: Annotated[int, Meta(ge=-1, le=1_000_000, description="-1: the broker's default.")] = -1
    config: Annotated[Config, Meta(description="Settings by Kafka's names, such as retention.ms.")] = field(
        default_factory=dict
    )
    validate_only: Annotated[bool, Meta(description="Only check that it could be created.")] = False


class TopicSettings(Body):
    set: Config = field(default_factory=dict)
    unset: Annotated[Names, Meta(description="Settings to reset to their defaults.")] = field(
        default_factory=list
    )


class Growth(Body):
    total: Annotated[int, Meta(ge=1, le=1_000_000, description="New number of partitions.")]


class Truncation(Body):
    before: Annotated[
        dict[Partition, Annotated[int, Meta(ge=-1, lt=1 << 62)]],
        Meta(
            max_length=MAX_ENTRIES * 100,
            description="Partition → offset: records before it are deleted. -1: all records.",
        ),
    ]


class OffsetsQuery(Struct):
    at: Annotated[str, Meta(description=START_POSITION_TEXT, max_length=100)] = "end"
    partition: Annotated[int, Meta(ge=_ALL_PARTITIONS, lt=1 << 31, description="-1: all.")] = _ALL_PARTITIONS


class TopicList(Struct):
    topics: list[TopicListing]


class TopicPlaceShown(Struct):
    partition: int
    offset: int
    timestamp_ms: int


class OffsetList(Struct):
    offsets: list[TopicPlaceShown]


class Starts(Struct):
    starts: dict[str, int]


class _Topics:
    def __init__(self, frontend: HttpContext) -> None:
        self._broker = frontend.broker

    async def list_topics(self, request: Request, by: Listing) -> object:
        """List the topics whose names match and that you may describe."""
        found = await self._broker.topics.listing_in_steps(by.pattern, principal=caller(request))
        return {"topics": [TopicListing(each.name, each.id, each.partition_count) for each in found]}

    async def create(self, request: Request, body: NewTopic) -> Response:
        """Create a topic. It is on stable storage when the response arrives."""
        made = await self._broker.topics.create(
            body.name,
            body.partitions,
            config_texts(body.config),
            validate_only=body.validate_only,
            principal=caller(request),
        )
        return json_response(made, 200 if body.validate_only else 201)

    async def describe(self, request: Request, topic: str) -> object:
        """Describe a topic: its partitions, and its settings if you may see those."""
        await self._broker.topics.open(topic, principal=caller(request))
        return self._broker.topics.describe(topic, principal=caller(request))

    async def configure(self, request: Request, topic: str, body: TopicSettings) -> object:
        """Change settings. They apply immediately."""
        return await self._broker.topics.configure(
            topic, config_texts(body.set), body.unset, principal=caller(request)
        )

    async def delete(self, request: Request, topic: str) -> None:
        """Delete a topic, its records, and the offsets that groups have committed for it."""
        await self._broker.topics.delete(topic, principal=caller(request))

    async def add_partitions(self, request: Request, topic: str, body: Growth) -> object:
        """Add partitions to a topic. Keys go to other partitions from then on."""
        return await self._broker.topics.add_partitions(topic, body.total, principal=caller(request))

    async def truncate(self, request: Request, topic: str, body: Truncation) -> object:
        """Delete the oldest records, and return the first offset of each partition."""
        starts = await self._broker.topics.delete_records(topic, body.before, principal=caller(request))
        return {"starts": starts}

    async def offsets(self, request: Request, topic: str, by: OffsetsQuery) -> object:
        """Look up a start position in each partition; the offset is -1 where no record is that
        late.
        """
        start = parse_start_position(by.at, offsets=False)
        found = await self._broker.records.offsets(
            topic, start.at, start.value, by.partition, principal=caller(request)
        )
        return {"offsets": [{"partition": p, "offset": o, "timestamp_ms": t} for p, o, t in found]}


def routes(frontend: HttpContext) -> list[Route]:
    """Return the routes of topics, except those of their messages."""
    topics = _Topics(frontend)
    serve = partial(operation, tag="topics")
    one = "/v1/topics/{topic}"
    also = {200: "It could be created (`validate_only`)."}
    return [
        serve("GET", "/v1/topics", topics.list_topics, TopicList, query=Listing, refusals=()),
        serve(
            "POST",
            "/v1/topics",
            topics.create,
            TopicDescription,
            body=NewTopic,
            status=201,
            also=also,
            refusals=(403, 409),
        ),
        serve("GET", one, topics.describe, TopicDescription),
        serve("PATCH", one, topics.configure, TopicDescription, body=TopicSettings),
        serve("DELETE", one, topics.delete, status=204, refusals=CONFLICTING),
        serve("POST", f"{one}/partitions", topics.add_partitions, TopicDescription, body=Growth),
        serve("POST", f"{one}/truncate", topics.truncate, Starts, body=Truncation, refusals=CONFLICTING),
        serve("GET", f"{one}/offsets", topics.offsets, OffsetList, query=OffsetsQuery),
    ]
