"""The table of operations: each row is reachable by every way in that it names."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import urllib.request
from pathlib import Path

import msgspec
import pytest

import sparrow
import sparrow.sync
from sparrow import testing
from sparrow.frontends.admin.operation import AdminOperation, HttpRoute
from sparrow.frontends.admin.operations import OPERATIONS
from sparrow.frontends.http.path_parameters import PathParameters
from sparrow.frontends.native.requests import HANDLERS
from sparrow.model.access import Quota
from tests.http_frontend.conftest import Http

SOURCE = Path(sparrow.__file__).parent
ROUTES = [(operation, route) for operation in OPERATIONS for route in operation.routes]


def test_names_are_unique_and_those_of_the_native_protocol() -> None:
    names = [each.name for each in OPERATIONS]
    assert len(names) == len(set(names))
    assert list(HANDLERS) == [each.name for each in OPERATIONS if each.is_native]


def test_every_operation_says_what_it_does() -> None:
    assert [each.name for each in OPERATIONS if not re.match(r"[A-Z]\w+ .+", each.text)] == []


def test_every_native_operation_is_called_by_a_client() -> None:
    clients = "".join(
        path.read_text()
        for folder in ("client", "spark", "pipelines", "cli")
        for path in (SOURCE / folder).rglob("*.py")
    )
    assert [name for name in HANDLERS if f'"{name}"' not in clients] == []


@pytest.mark.parametrize(
    ("operation", "route"), ROUTES, ids=[f"{route.method} {route.path}" for _, route in ROUTES]
)
def test_routes_give_an_operation_its_arguments(operation: AdminOperation, route: HttpRoute) -> None:
    in_path = re.findall(r"{(\w+)}", route.path)
    assert set(in_path) <= set(PathParameters.__struct_fields__)
    if route.arguments is None:
        fields = operation.arguments.__struct_fields__
        struct = route.query or route.body
        given = () if struct is None else struct.__struct_fields__
        assert len(in_path) <= len(fields)
        assert set(given) <= set(fields[len(in_path) :])
    else:
        expected = len(in_path) + 1 + (route.query is not None) + (route.body is not None)
        assert len(inspect.signature(route.arguments).parameters) == expected


async def test_every_route_is_served_and_described(http: Http) -> None:
    paths = (await http.get("/openapi.json")).json["paths"]
    for operation, route in ROUTES:
        described = paths[route.path][route.method.lower()]
        assert described["description"] == (route.text or operation.text).strip()
        assert described["tags"] == [route.tag]
        assert str(route.status) in described["responses"]


QUOTA = {"entity": {"user": "ann"}, "values": {"producer_byte_rate": 1000.0}}


@pytest.mark.slow
def test_one_operation_by_every_way_in() -> None:
    async def by_the_async_client(url: str) -> list[Quota]:
        async with sparrow.connect(url) as client:
            await client.admin.alter_quota(QUOTA["entity"], {"consumer_byte_rate": 10.0})
            return await client.admin.list_quotas()

    with testing.broker() as running:
        address = f"{running.http}/v1/quotas"
        change = urllib.request.Request(
            address, json.dumps(QUOTA).encode(), {"Content-Type": "application/json"}, method="PATCH"
        )
        urllib.request.urlopen(change).close()
        found = asyncio.run(by_the_async_client(running.url))
        with sparrow.sync.connect(running.url) as client:
            assert client.admin.list_quotas() == found
        with urllib.request.urlopen(address) as response:
            assert json.load(response) == {"quotas": msgspec.to_builtins(found)}
    assert [each.values for each in found] == [{"producer_byte_rate": 1000.0, "consumer_byte_rate": 10.0}]
