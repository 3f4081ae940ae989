from __future__ import annotations

from base64 import b64encode

from sparrow.broker.config import BrokerConfig
from tests.http_admin.calls import call, done
from tests.http_frontend.conftest import Http, MakeHttp

RULE = {"resource_type": "Topic", "name": "orders", "principal": "User:alice", "operation": "Read"}
ADMINISTERED = BrokerConfig(super_users=frozenset({"User:ANONYMOUS", "User:alice"}))
WHOLE = {**RULE, "permission": "Allow", "pattern_type": "Literal", "host": "*"}


def basic(user: str, password: str) -> dict[str, str]:
    return {"authorization": f"Basic {b64encode(f'{user}:{password}'.encode()).decode()}"}


async def test_a_user_is_made_logs_in_gets_another_password_and_is_deleted(make_http: MakeHttp) -> None:
    http = await make_http(config=ADMINISTERED)
    assert await done(http, "POST", "/v1/users", {"name": "alice", "password": "the first one"}, 201) == {
        "name": "alice"
    }

    (listed,) = (await done(http, "GET", "/v1/users"))["users"]
    assert listed["name"] == "alice"
    assert {each["mechanism"] for each in listed["credentials"]} == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
    assert (await http.get("/v1/broker", **basic("alice", "the first one"))).status == 200
    await done(
        http, "PUT", "/v1/users/alice", {"password": "the second one", "mechanisms": ["SCRAM-SHA-512"]}, 204
    )
    assert (await http.get("/v1/broker", **basic("alice", "the first one"))).code == "NOT_AUTHENTICATED"
    assert (await http.get("/v1/broker", **basic("alice", "the second one"))).status == 200
    assert (
        await call(http, "POST", "/v1/users", {"name": "alice", "password": "long enough"})
    ).code == "USER_EXISTS"
    await done(http, "DELETE", "/v1/users/alice", status=204)
    assert (await call(http, "DELETE", "/v1/users/alice")).code == "UNKNOWN_USER"
    assert (await call(http, "PUT", "/v1/users/alice", {"password": "long enough"})).code == "UNKNOWN_USER"


NO_USERS = [
    {"name": "a", "password": ""},
    {"name": "a", "password": "7 chars"},
    {"name": "ANONYMOUS", "password": "long enough"},
    {"name": "*", "password": "long enough"},
    {"name": "a"},
    {"name": "", "password": "long enough"},
    {"name": "a", "password": 7},
    {"name": "a", "password": "x" * 5000},
    {"name": "a", "password": "\ud800"},
    {"name": "\ud800", "password": "long enough"},
    {"name": "a", "password": "long enough", "mechanisms": []},
    {"name": "a", "password": "long enough", "mechanisms": ["PLAIN"]},
    {"name": "a", "password": "long enough", "iterations": 1},
    {"name": "a", "password": "long enough", "iterations": 2**40},
]


async def test_invalid_user_is_refused_without_showing_the_password(http: Http) -> None:
    for body in NO_USERS:
        response = await call(http, "POST", "/v1/users", body)

        assert response.status == 400, (body, response)
        assert response.code
        assert b"xxxx" not in response.body
        assert await done(http, "GET", "/v1/users") == {"users": []}


async def test_rules_are_made_listed_and_deleted(make_http: MakeHttp) -> None:
    http = await make_http(config=ADMINISTERED)
    denied = {**WHOLE, "permission": "Deny", "pattern_type": "Prefixed", "name": "sec"}
    made = await done(http, "POST", "/v1/acls", {"rules": [RULE, denied]}, 201)

    assert made == {"rules": [WHOLE, denied]}
    assert await done(http, "GET", "/v1/acls?name=orders") == {"rules": [WHOLE]}
    matching = await done(http, "GET", "/v1/acls?name=secrets&pattern_type=Match")
    assert matching == {"rules": [denied]}
    assert await done(http, "DELETE", "/v1/acls?permission=Deny") == {"rules": [denied]}
    assert await done(http, "GET", "/v1/acls") == {"rules": [WHOLE]}


async def test_to_delete_every_rule_has_to_be_said(make_http: MakeHttp) -> None:
    http = await make_http(config=ADMINISTERED)
    await done(http, "POST", "/v1/acls", {"rules": [RULE]}, 201)

    assert (await call(http, "DELETE", "/v1/acls")).status == 400
    assert (await call(http, "DELETE", "/v1/acls?pricipal=User:alice")).status == 400
    assert await done(http, "DELETE", "/v1/acls?all=true") == {"rules": [WHOLE]}


NO_RULES = [
    {"principal": "alice"},
    {"operation": "Any"},
    {"operation": "read"},
    {"resource_type": "Queue"},
    {"name": ""},
    {"name": "\ud800"},
    {"name": "x" * 5000},
    {"host": ""},
    {"pattern_type": "Match"},
    {"resource_type": "Cluster", "name": "other"},
]


async def test_a_rule_that_is_wrong_makes_none(http: Http) -> None:
    for change in NO_RULES:
        response = await call(http, "POST", "/v1/acls", {"rules": [RULE, {**RULE, **change}]})

        assert response.status == 400, (change, response)
        assert response.code
        assert await done(http, "GET", "/v1/acls") == {"rules": []}


async def test_quotas_are_set_listed_and_removed(http: Http) -> None:
    entity = {"user": "alice", "client-id": None}

    await done(http, "PATCH", "/v1/quotas", {"entity": entity, "values": {"producer_byte_rate": 1000}}, 204)

    assert await done(http, "GET", "/v1/quotas") == {
        "quotas": [{"entity": entity, "values": {"producer_byte_rate": 1000.0}}]
    }
    await done(http, "PATCH", "/v1/quotas", {"entity": entity, "values": {"producer_byte_rate": None}}, 204)
    assert await done(http, "GET", "/v1/quotas") == {"quotas": []}


NO_QUOTAS = [
    {"entity": {}, "values": {}},
    {"entity": {"planet": "x"}, "values": {}},
    {"entity": {"user": "a"}, "values": {"producer_byte_rate": -1}},
    {"entity": {"user": "a"}, "values": {"producer_byte_rate": float("nan")}},
    {"entity": {"user": "a"}, "values": {"producer_byte_rate": 1e308}},
    {"entity": {"user": "a"}, "values": {"producer_byte_rate": 10**400}},
    {"entity": {"user": "\ud800"}, "values": {"producer_byte_rate": 1}},
    {"entity": {"ip": "not an address"}, "values": {"connection_creation_rate": 1}},
]


async def test_invalid_quota_is_refused(http: Http) -> None:
    for body in NO_QUOTAS:
        response = await call(http, "PATCH", "/v1/quotas", body)

        assert response.status == 400, (body, response)
        assert response.code


async def test_the_broker_tells_what_it_is(http: Http) -> None:
    await http.broker.topics.create("orders", 3)

    found = await done(http, "GET", "/v1/broker")

    assert (found["topics"], found["partitions"], found["cluster_id"]) == (1, 3, http.broker.cluster_id)
    assert found["version"]
    assert found["connections"] == 1
