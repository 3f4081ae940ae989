from __future__ import annotations

from tests.http_admin.calls import call, done
from tests.http_admin.test_http_topics import filled
from tests.http_frontend.conftest import Http


async def test_a_group_is_committed_described_reset_and_deleted(http: Http) -> None:
    await http.broker.topics.create("orders", 2)
    await filled(http.broker, 10)
    offsets = [{"topic": "orders", "partition": 0, "offset": 4, "metadata": "by hand"}]

    await done(http, "PUT", "/v1/groups/mailers/offsets", {"offsets": offsets}, 204)

    assert await done(http, "GET", "/v1/groups/mailers/offsets?topic=orders") == {"offsets": offsets}
    described = await done(http, "GET", "/v1/groups/mailers")
    assert described["offsets"] == [{**offsets[0], "end_offset": 10, "lag": 6}]
    assert (described["state"], described["members"]) == ("empty", [])
    listed = await done(http, "GET", "/v1/groups")
    assert [(each["group"], each["members"]) for each in listed["groups"]] == [("mailers", 0)]

    moved = await done(http, "POST", "/v1/groups/mailers/reset", {"topic": "orders", "to": "end"})
    assert [(each["partition"], each["offset"]) for each in moved["offsets"]] == [(0, 10), (1, 0)]
    one = {"topic": "orders", "to": 3, "partitions": [0]}
    moved = await done(http, "POST", "/v1/groups/mailers/reset", one)
    assert moved == {"offsets": [{"topic": "orders", "partition": 0, "offset": 3}]}

    await done(http, "DELETE", "/v1/groups/mailers", status=204)
    assert (await call(http, "DELETE", "/v1/groups/mailers")).code == "UNKNOWN_GROUP"


async def test_a_partition_that_is_committed_twice_in_one_call_is_refused(http: Http) -> None:
    await http.broker.topics.create("orders")
    twice = {"offsets": [{"topic": "orders", "partition": 0, "offset": n} for n in (1, 2)]}

    assert (await call(http, "PUT", "/v1/groups/g/offsets", twice)).code == "DUPLICATE_RESOURCE"
    assert await done(http, "GET", "/v1/groups") == {"groups": []}


NO_OFFSETS = [
    ("offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": -1}]}),
    ("offsets", {"offsets": [{"topic": "orders", "partition": -1, "offset": 1}]}),
    ("offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 2**63}]}),
    ("offsets", {"offsets": [{"topic": "orders", "partition": 2**31, "offset": 1}]}),
    ("offsets", {"offsets": [{"topic": "orders", "partition": 0, "offset": 1, "metadata": "x" * 9999}]}),
    ("offsets", {"offsets": [{"topic": "\ud800", "partition": 0, "offset": 1}]}),
    ("reset", {"topic": "orders", "to": -1}),
    ("reset", {"topic": "orders", "to": "sideways"}),
    ("reset", {"topic": "orders", "to": 2**63}),
    ("reset", {"topic": "orders"}),
    ("reset", {"topic": "orders", "to": "end", "partitions": [-1]}),
]


async def test_offsets_that_cannot_be_are_refused(http: Http) -> None:
    await http.broker.topics.create("orders")

    for path, body in NO_OFFSETS:
        response = await call(http, "PUT" if path == "offsets" else "POST", f"/v1/groups/g/{path}", body)

        assert response.status == 400, (body, response)
        assert response.code
